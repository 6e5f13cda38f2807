package node

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// FR.HELP and docs/commands.md have every command of freshet's own, and say the same.
func TestOwnCommandsAreDocumented(t *testing.T) {
	p := start(t, nil)
	listen, _ := p.Addr(0)
	c := dial(t, listen)
	b, err := os.ReadFile("../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(FR\\.[A-Z]+)(.*?)` \\| (.*) \\|$").FindAllStringSubmatch(string(b), -1) {
		listed[strings.ToLower(m[1])] = m[1] + strings.ReplaceAll(m[2], `\|`, "|") + ": " + m[3]
	}
	help := c.do("FR.HELP")
	own := 0
	for _, cmd := range p.commands {
		if cmd.Group != "freshet" {
			continue
		}
		if listed[cmd.Name] != cmd.Summary {
			t.Errorf("docs/commands.md says %q of a command that says %q", listed[cmd.Name], cmd.Summary)
		}
		if own >= len(help.Elems) || help.Elems[own].Text != cmd.Summary || !strings.HasPrefix(cmd.Summary, strings.ToUpper(cmd.Name)) {
			t.Errorf("FR.HELP does not say %q", cmd.Summary)
		}
		own++
		delete(listed, cmd.Name)
	}
	if len(listed) > 0 {
		t.Errorf("docs/commands.md has commands that there are not: %v", listed)
	}
	c.says([][2]string{
		{"FR.HELP nonsense", "-ERR 'nonsense' is no command of freshet's own..."}, {"FR.HELP cas", "[FR.CAS key version..."}, {"FR.HELP FR.CAS", "[FR.CAS key version..."},
	})
}
