package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/freshet-cache/freshet/node"
)

// Every flag of serve is in one group, and its help shows each once.
func TestFlagsAreGrouped(t *testing.T) {
	cmd := serve()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--help"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	in := map[string]int{}
	for _, g := range groups {
		for _, f := range g.flags {
			in[f]++
		}
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if in[f.Name] != 1 {
			t.Errorf("--%s is in %d groups", f.Name, in[f.Name])
		}
		if n := strings.Count(out.String(), "\n      --"+f.Name+" ") + strings.Count(out.String(), "--"+f.Name+"   "); n == 0 {
			t.Errorf("the help has no --%s", f.Name)
		}
		delete(in, f.Name)
	})
	if len(in) > 0 || strings.Contains(out.String(), "\nOther:") {
		t.Errorf("groups name flags that there are not, or not all: %v", in)
	}
	if a, b := strings.Index(out.String(), "\nNetwork:"), strings.Index(out.String(), "\nSpaces:"); a < 0 || b < a {
		t.Error(out.String())
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "65536": 65536, "1B": 1, "1KB": 1000, "1KiB": 1024, "64MiB": 64 << 20, "1GB": 1e9, "1gib": 1 << 30, "1.5GiB": 3 << 29, " 2 MB ": 2e6, "-1": -1,
	} {
		if n, err := parseSize(text); err != nil || n != want {
			t.Errorf("%q is %d, %v", text, n, err)
		}
		if n, err := parseSize(sizeText(want)); err != nil || n != want {
			t.Errorf("%d is written as %s, which is %d, %v", want, sizeText(want), n, err)
		}
	}
	for _, text := range []string{"", "GB", "1TB", "12Q", "1.5", "-1.5KB", "9999999999GiB", "1e30GB", "NaN GB", "Inf KB"} {
		if n, err := parseSize(text); err == nil || !strings.Contains(err.Error(), "64MiB") {
			t.Errorf("%q is %d, %v", text, n, err)
		}
	}
}

// Sizes have units in the file, in the environment and as flags.
func TestSizesEverywhere(t *testing.T) {
	t.Setenv("FRESHET_MAX_KEY", "2KiB")
	c := node.Defaults()
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags(f, &c)
	if err := f.Parse([]string{"--max-value=1MB"}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "freshet.yaml")
	if err := os.WriteFile(file, []byte("memory: 1GiB # much\nmax-value: 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := load(f, &c, file); err != nil || c.MaxValue != 1e6 {
		t.Error(c.MaxValue, err)
	}
	if c.Memory != 1<<30 || c.MaxKey != 2<<10 {
		t.Error(c.Memory, c.MaxKey)
	}
	for _, text := range []string{"memory: much", "memory: 1GiB\nnonsense: 1", "max-key: [1]"} {
		c := node.Defaults()
		if err := decode(strings.NewReader(text), &c); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

// The environment and flags say all spaces; nothing is added to those of the file.
func TestSpacesReplaceThoseOfTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "freshet.yaml")
	if err := os.WriteFile(file, []byte("spaces:\n  feeds: causal\n  carts: {promise: causal, merge: union}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		env  string
		args []string
		want string
	}{
		{"", nil, "feeds=causal;carts=causal,merge=union"},
		{"a=causal;b=causal,db=4", nil, "a=causal;b=causal,db=4"},
		{"a=causal", []string{"--space", "x=causal", "--space", "y=causal,tcc"}, "x=causal;y=causal,tcc"},
	} {
		t.Setenv("FRESHET_SPACE", x.env)
		if x.env == "" {
			os.Unsetenv("FRESHET_SPACE")
		}
		c, f := node.Defaults(), pflag.NewFlagSet("", pflag.ContinueOnError)
		flags(f, &c)
		if err := f.Parse(x.args); err != nil {
			t.Fatal(err)
		}
		if err := load(f, &c, file); err != nil || c.Spaces.String() != x.want {
			t.Errorf("%q and %q: %s, %v", x.env, x.args, c.Spaces.String(), err)
		}
	}
}

func TestUnknownVariables(t *testing.T) {
	c := node.Defaults()
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags(f, &c)
	got := unknownEnv(f, []string{"FRESHET_LISTEN=x", "FRESHET_LISTN=x", "FRESHET_CONFIG=x", "FRESHET_TEST_REDIS=x", "FRESHET_QQQQQQQQQQ=1", "HOME=x"})
	want := []string{"FRESHET_LISTN is no setting, and is not looked at; is FRESHET_LISTEN meant?", "FRESHET_QQQQQQQQQQ is no setting, and is not looked at"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestVersion(t *testing.T) {
	cmd := version()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(nil)
	if err := cmd.Execute(); err != nil || !strings.Contains(out.String(), node.Version) || !strings.Contains(out.String(), "\ncommit  "+node.Revision()+"\n") {
		t.Error(out.String(), err)
	}
}

// What is wrong with a password, or else with an answer, is said.
func TestStatusSaysWhatIsWrong(t *testing.T) {
	code, body := http.StatusUnauthorized, "give the password\n"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}))
	defer s.Close()
	ask := func() string {
		cmd := status()
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetArgs([]string{"--admin", strings.TrimPrefix(s.URL, "http://")})
		err := cmd.Execute()
		if err == nil {
			return ""
		}
		return err.Error()
	}
	t.Setenv("FRESHET_PASSWORD", "")
	if got := ask(); !strings.Contains(got, "asks for a password") || strings.Contains(got, "%!") {
		t.Error(got)
	}
	t.Setenv("FRESHET_PASSWORD", "wrong")
	if got := ask(); !strings.Contains(got, "refuses the password") || strings.Contains(got, "%!") {
		t.Error(got)
	}
	code, body = http.StatusInternalServerError, "out of order\n"
	if got := ask(); !strings.Contains(got, "500") || !strings.Contains(got, "out of order") || strings.Contains(got, "%!") {
		t.Error(got)
	}
}

// A simulation with a limit ends, and says how many seeds it ran.
func TestSimulationKeepsItsTime(t *testing.T) {
	cmd := simulate()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"linear", "--for", "1ms"})
	if err := cmd.Execute(); err != nil || !strings.Contains(out.String(), "1 seeds from 1 on") {
		t.Error(out.String(), err)
	}
	if got := simLine(100, 400, 5, 10*time.Second, 0); !strings.Contains(got, "10.0 seeds a second, about 30s more") {
		t.Error(got)
	}
	if got := simLine(100, 400, 5, 10*time.Second, 12*time.Second); !strings.Contains(got, "about 2s more") {
		t.Error(got)
	}
}

func TestBenchList(t *testing.T) {
	cmd := benchmark()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"list"})
	if err := cmd.Execute(); err != nil || !strings.Contains(out.String(), "linear-hit ") || strings.Count(out.String(), "\n") < 10 {
		t.Error(out.String(), err)
	}
}
