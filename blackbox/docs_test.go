package blackbox

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documented is a command on a page, with its documented answer.
type documented struct {
	where, cmd string
	prompt     string // the address and database of a connection that stays open; or empty
	want       []string
}

// shown returns the commands of a page: lines that begin with $ in console blocks, and lines after
// the prompt of redis-cli. The following lines are the answer.
func shown(t *testing.T, page string) (out []documented) {
	t.Helper()
	b, err := os.ReadFile("../" + page)
	if err != nil {
		t.Fatal(err)
	}
	prompt := regexp.MustCompile(`^(?:\$ |127\.0\.0\.1:(\d+)(?:\[(\d+)\])?> )(.*)$`)
	fence, open := false, false
	for i, line := range strings.Split(string(b), "\n") {
		if strings.HasPrefix(line, "```") {
			fence, open = line == "```console", false
			continue
		}
		indented := strings.HasPrefix(line, "    ")
		if !fence && !indented {
			open = false
			continue
		}
		if !fence {
			line = line[4:]
		}
		if m := prompt.FindStringSubmatch(line); m != nil {
			cmd, _, _ := strings.Cut(m[3], "  # ")
			d := documented{where: fmt.Sprintf("%s:%d", page, i+1), cmd: strings.TrimSpace(cmd)}
			if m[1] != "" {
				d.prompt = "-p " + m[1] + " -n " + cmp.Or(m[2], "0")
			}
			out, open = append(out, d), true
			continue
		}
		if d := len(out) - 1; open && strings.HasSuffix(out[d].cmd, `\`) {
			out[d].cmd = strings.TrimSuffix(out[d].cmd, `\`) + strings.TrimSpace(line)
		} else if open {
			out[d].want = append(out[d].want, line)
		}
	}
	return out
}

var (
	freshest = regexp.MustCompile(`[A-Za-z0-9_-]{20,}|\d{6,}`) // versions and tokens, which differ in every run
	digits   = regexp.MustCompile(`\d+`)
	ports    = regexp.MustCompile(`-p (638[0-2])`)
)

// The pages with commands for redis-cli and status are true: every command runs, in order, and
// answers what the page shows, except for numbers.
func TestDocumentedCommands(t *testing.T) {
	for _, page := range []string{"docs/start.md", "docs/clients.md", "docs/commands.md", "docs/causal.md"} {
		t.Run(page, func(t *testing.T) {
			p := run(t, 3, "--store", "memory:", "--data", t.TempDir(), "--space", "feeds=causal,db=2", "--space", "carts=causal,merge=union")
			p.eventually(func() bool { // slices are spread
				out, err := command(t, nil, "status", "--admin", p.admin[0])
				return err == nil && !strings.Contains(out, "take no writes") && strings.Count(out, " 4 ") >= 3
			})
			real, shells := map[string]string{}, map[string]func(string) []byte{}
			for _, d := range shown(t, page) {
				cmd := freshest.ReplaceAllStringFunc(d.cmd, func(s string) string {
					if r, ok := real[s]; ok {
						return r
					}
					return s
				})
				at := func(s string) string {
					return ports.ReplaceAllStringFunc(s, func(s string) string { return "-p " + port(p.addrs[s[len(s)-1]-'0']) })
				}
				var out []byte
				var err error
				switch {
				case d.prompt != "":
					if shells[d.prompt] == nil {
						shells[d.prompt] = interactive(t, strings.Fields(at(d.prompt)))
					}
					out = shells[d.prompt](cmd)
				case strings.HasPrefix(cmd, "redis-cli "):
					cmd = strings.Replace(at(cmd), "redis-cli ", "redis-cli --no-raw ", 1)
					out, err = exec.CommandContext(t.Context(), "sh", "-c", cmd).CombinedOutput()
				case strings.HasSuffix(cmd, "freshet status"):
					out, err = exec.CommandContext(t.Context(), binary, "status", "--admin", p.admin[0]).CombinedOutput()
				default:
					accepted(t, d)
					continue
				}
				if err != nil {
					t.Errorf("%s: %s: %v\n%s", d.where, d.cmd, err, out)
				}
				got := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
				for len(d.want) > 0 && d.want[len(d.want)-1] == "" {
					d.want = d.want[:len(d.want)-1]
				}
				for i, want := range d.want {
					have := ""
					if i < len(got) {
						have = got[i]
					}
					if plain(want) != plain(have) {
						t.Errorf("%s: %s answers\n%s\nand not\n%s", d.where, d.cmd, strings.Join(got, "\n"), strings.Join(d.want, "\n"))
						break
					}
					said, is := freshest.FindAllString(want, -1), freshest.FindAllString(have, -1)
					for j := range min(len(said), len(is)) {
						real[said[j]] = is[j]
					}
				}
			}
		})
	}
}

// interactive runs redis-cli. It returns a function that sends a line and returns the answer.
func interactive(t *testing.T, args []string) func(line string) []byte {
	cmd := exec.CommandContext(t.Context(), tool(t, "redis-cli"), append([]string{"--no-raw"}, args...)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(answers)
	const end = "end-of-the-answer"
	return func(line string) (out []byte) {
		fmt.Fprintf(in, "%s\nECHO %s\n", line, end)
		for lines.Scan() && !strings.Contains(lines.Text(), end) {
			out = append(append(out, lines.Bytes()...), '\n')
		}
		return out
	}
}

// plain returns a line without the parts that differ from run to run.
func plain(line string) string {
	line = freshest.ReplaceAllString(line, "0")
	return strings.Join(strings.Fields(digits.ReplaceAllString(line, "0")), " ")
}

// accepted checks that freshet has the command and the flags of a line that does not run here.
func accepted(t *testing.T, d documented) {
	t.Helper()
	words := strings.Fields(strings.TrimSuffix(d.cmd, " &"))
	for i, w := range words {
		if w != "freshet" && w != "./cmd/freshet" || i+1 == len(words) {
			continue
		}
		args := words[i+1:]
		if end := slices.IndexFunc(args, func(s string) bool { return strings.HasPrefix(s, "-") }); end >= 0 {
			args = args[:end]
		}
		out, err := exec.CommandContext(t.Context(), binary, append(args, "--help")...).CombinedOutput()
		if err != nil {
			t.Errorf("%s: freshet %v --help: %v\n%s", d.where, args, err, out)
		}
		for _, flag := range words[i+1+len(args):] {
			if name, _, _ := strings.Cut(flag, "="); strings.HasPrefix(name, "--") && !slices.Contains(strings.Fields(string(out)), name) {
				t.Errorf("%s: freshet %v has no flag %s", d.where, args, name)
			}
		}
		return
	}
	t.Errorf("%s: nothing is known of the command %q", d.where, d.cmd)
}
