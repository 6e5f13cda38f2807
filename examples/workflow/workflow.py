"""Publishes a picture in three steps, each of which asks another node: nobody ever sees
the post without the picture, or the picture without its thumbnail.

    go run ./cmd/freshet serve --store memory: --nodes 3 --space feeds=causal
    python3 examples/workflow/workflow.py 127.0.0.1:6380 127.0.0.1:6381 127.0.0.1:6382

It needs redis-py. What travels from step to step is a token, a short text.
"""

import sys

import redis


def upload(node, token, name):
    return node.execute_command("FR.CSET", token, "picture:" + name, "the picture " + name)


def shrink(node, token, name):
    """Makes a thumbnail of the picture, which upload has stored at another node."""
    token, picture = node.execute_command("FR.CGET", token, "picture:" + name)
    return node.execute_command("FR.CSET", token, "thumbnail:" + name, "a small copy of " + picture)


def post(node, token, name):
    token, feed = node.execute_command("FR.CGET", token, "feed")
    return node.execute_command("FR.CSET", token, "feed", " ".join(filter(None, [feed, name])))


def look(nodes):
    """Reads the feed at every node as a visitor who knows of nothing, and goes on at the next."""
    for i, node in enumerate(nodes):
        token, feed = node.execute_command("FR.CGET", node.execute_command("FR.BEGIN", "feeds"), "feed")
        for name in (feed or "").split():
            token, thumbnail = nodes[(i + 1) % len(nodes)].execute_command("FR.CGET", token, "thumbnail:" + name)
            if thumbnail is None:
                sys.exit(f"node {i + 1} lists {name}, and the next has no thumbnail of it")
        print(f"  node {i + 1} lists: {feed}")


def main(addresses):
    nodes = [redis.Redis(host, int(port), decode_responses=True) for host, port in (a.split(":") for a in addresses)]
    token = nodes[0].execute_command("FR.BEGIN", "feeds")
    for i, name in enumerate(["sunrise", "harbour", "dunes"]):  # one user's: each goes on from the last
        for j, step in enumerate([upload, shrink, post]):
            token = step(nodes[(i + j) % len(nodes)], token, name)
        print(f"published {name}; the token that went along has {len(token)} bytes")
        look(nodes)


if __name__ == "__main__":
    main(sys.argv[1:] or ["127.0.0.1:6380", "127.0.0.1:6381", "127.0.0.1:6382"])
