// Command workflow publishes a picture in three steps, each of which asks another node:
// nobody ever sees the post without the picture, or the picture without its thumbnail.
//
//	go run ./cmd/freshet serve --store memory: --nodes 3 --space feeds=causal
//	go run ./examples/workflow
//
// The same in Python is workflow.py beside it. What travels from step to step is a token;
// here it goes from function to function, as it would in a header or a message.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

func main() {
	nodes := flag.String("nodes", "127.0.0.1:6380,127.0.0.1:6381,127.0.0.1:6382", "the nodes, with commas between")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, strings.Split(*nodes, ","), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "workflow:", err)
		os.Exit(1)
	}
}

// step is a function of the workflow, at a node of its own.
type step func(ctx context.Context, node *redis.Client, token, name string) (next string, err error)

// upload stores the picture.
func upload(ctx context.Context, node *redis.Client, token, name string) (string, error) {
	return node.Do(ctx, "FR.CSET", token, "picture:"+name, "the picture "+name).Text()
}

// shrink makes a thumbnail of the picture, which upload has stored at another node.
func shrink(ctx context.Context, node *redis.Client, token, name string) (string, error) {
	token, picture, err := get(ctx, node, token, "picture:"+name)
	if err != nil {
		return "", err
	}
	return node.Do(ctx, "FR.CSET", token, "thumbnail:"+name, "a small copy of "+picture).Text()
}

// post lists the picture in the feed.
func post(ctx context.Context, node *redis.Client, token, name string) (string, error) {
	token, feed, err := get(ctx, node, token, "feed")
	if err != nil {
		return "", err
	}
	return node.Do(ctx, "FR.CSET", token, "feed", strings.TrimSpace(feed+" "+name)).Text()
}

// get reads a key in a session.
func get(ctx context.Context, node *redis.Client, token, key string) (next, value string, err error) {
	answer, err := node.Do(ctx, "FR.CGET", token, key).Slice()
	if err != nil {
		return "", "", err
	}
	value, _ = answer[1].(string)
	return answer[0].(string), value, nil
}

func run(ctx context.Context, nodes []string, out *os.File) error {
	var clients []*redis.Client
	for _, addr := range nodes {
		c := redis.NewClient(&redis.Options{Addr: addr})
		defer c.Close()
		clients = append(clients, c)
	}
	token, err := clients[0].Do(ctx, "FR.BEGIN", "feeds").Text()
	if err != nil {
		return err
	}
	for i, name := range []string{"sunrise", "harbour", "dunes"} { // one user's: each goes on from the last
		for j, do := range []step{upload, shrink, post} {
			if token, err = do(ctx, clients[(i+j)%len(clients)], token, name); err != nil {
				return err
			}
		}
		fmt.Fprintf(out, "published %s; the token that went along has %d bytes\n", name, len(token))
		if err := look(ctx, clients, out); err != nil {
			return err
		}
	}
	return nil
}

// look reads the feed at every node as a visitor does, who knows of nothing, and all
// that it lists.
func look(ctx context.Context, clients []*redis.Client, out *os.File) error {
	for i, c := range clients {
		token, err := c.Do(ctx, "FR.BEGIN", "feeds").Text()
		if err != nil {
			return err
		}
		token, feed, err := get(ctx, c, token, "feed")
		if err != nil {
			return err
		}
		for _, name := range strings.Fields(feed) {
			var thumbnail string
			// The visitor goes on at the next node, and sees there what the feed spoke of.
			if token, thumbnail, err = get(ctx, clients[(i+1)%len(clients)], token, "thumbnail:"+name); err != nil {
				return err
			}
			if thumbnail == "" {
				return fmt.Errorf("node %d lists %s, and node %d has no thumbnail of it", i+1, name, (i+1)%len(clients)+1)
			}
		}
		fmt.Fprintf(out, "  node %d lists: %s\n", i+1, feed)
	}
	return nil
}
