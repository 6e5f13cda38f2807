package node

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// SpaceConfig describes one space beside database 0, which is linearizable.
type SpaceConfig struct {
	// Name is what clients and other nodes call the space: up to 100 bytes, no slash, backslash, comma,
	// semicolon, equals sign or blank.
	Name string `yaml:"-"`
	// Promise is what the space promises: causal.
	Promise string `yaml:"promise"`
	// Merge names the function that merges values which were written at the same time: union
	// (of JSON arrays) or max (of numbers). Default: none, one of the writes wins.
	Merge string `yaml:"merge,omitempty"`
	// TCC keeps former values, so that transactions begin again more rarely.
	TCC bool `yaml:"tcc,omitempty"`
	// Async acknowledges writes from a log on this node's disk. It is for good.
	Async bool `yaml:"async,omitempty"`
	// DB is the number that SELECT takes for the space, 1 to 1023. Default 0: none.
	DB int `yaml:"db,omitempty"`
}

// Spaces are the spaces of a configuration. As a flag they are NAME=PROMISE[,OPTION...], as
// often as there are spaces; in the environment with semicolons between; in YAML a map of
// names to a promise, or to a map of a promise and options.
type Spaces []SpaceConfig

// parseSpace reads NAME=PROMISE[,OPTION[=VALUE]...].
func parseSpace(text string) (s SpaceConfig, err error) {
	words := strings.Split(text, ",")
	var ok bool
	if s.Name, s.Promise, ok = strings.Cut(strings.TrimSpace(words[0]), "="); !ok {
		return s, fmt.Errorf("%.110q is not a space: say NAME=PROMISE, for instance feeds=causal or carts=causal,merge=union", text)
	}
	for _, w := range words[1:] {
		name, value, given := strings.Cut(strings.TrimSpace(w), "=")
		switch {
		case name == "merge" && value != "":
			s.Merge = value
		case name == "tcc" && !given:
			s.TCC = true
		case name == "async" && !given:
			s.Async = true
		case name == "db" && given:
			if s.DB, err = strconv.Atoi(value); err != nil || s.DB == 0 {
				return s, fmt.Errorf("the space %s: db=%.20s is not a number from 1 to 1023", s.Name, value)
			}
		default:
			return s, fmt.Errorf("the space %s: nothing is known of the option %.110q; there are merge=union, merge=max, tcc, async and db=NUMBER", s.Name, w)
		}
	}
	return s, nil
}

// String is the space as a flag says it.
func (s SpaceConfig) String() string {
	out := s.Name + "=" + s.Promise
	if s.Merge != "" {
		out += ",merge=" + s.Merge
	}
	if s.TCC {
		out += ",tcc"
	}
	if s.Async {
		out += ",async"
	}
	if s.DB != 0 {
		out += ",db=" + strconv.Itoa(s.DB)
	}
	return out
}

// String implements pflag.Value.
func (s *Spaces) String() string { return strings.Join(s.GetSlice(), ";") }

// Type implements pflag.Value.
func (s *Spaces) Type() string { return "space" }

// Set implements pflag.Value: it adds spaces.
func (s *Spaces) Set(text string) error {
	for _, one := range strings.Split(text, ";") {
		if strings.TrimSpace(one) == "" {
			continue
		}
		if err := s.Append(one); err != nil {
			return err
		}
	}
	return nil
}

// Append implements pflag.SliceValue.
func (s *Spaces) Append(text string) error {
	one, err := parseSpace(text)
	if err == nil {
		*s = append(*s, one)
	}
	return err
}

// Replace implements pflag.SliceValue.
func (s *Spaces) Replace(texts []string) error {
	*s = nil
	for _, t := range texts {
		if err := s.Set(t); err != nil {
			return err
		}
	}
	return nil
}

// GetSlice implements pflag.SliceValue.
func (s *Spaces) GetSlice() (out []string) {
	for _, one := range *s {
		out = append(out, one.String())
	}
	return out
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (s *Spaces) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: spaces are a map, for instance {feeds: causal, carts: {promise: causal, merge: union}}", n.Line)
	}
	*s = nil
	for i := 0; i+1 < len(n.Content); i += 2 {
		one := SpaceConfig{Name: n.Content[i].Value}
		if v := n.Content[i+1]; v.Kind == yaml.ScalarNode {
			one.Promise = v.Value
		} else {
			for j := 0; j+1 < len(v.Content); j += 2 {
				if k := v.Content[j]; !slices.Contains([]string{"promise", "merge", "tcc", "async", "db"}, k.Value) {
					return fmt.Errorf("line %d: nothing is known of the option %.110q of a space; there are promise, merge, tcc, async and db", k.Line, k.Value)
				}
			}
			if err := v.Decode(&one); err != nil {
				return err
			}
		}
		*s = append(*s, one)
	}
	return nil
}

// MarshalYAML implements yaml.Marshaler.
func (s Spaces) MarshalYAML() (any, error) {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, one := range s {
		var value yaml.Node
		if err := value.Encode(one); err != nil {
			return nil, err
		}
		n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: one.Name}, &value)
	}
	return n, nil
}

// check says everything that is wrong with the spaces.
func (s Spaces) check(c *Config) error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	names, numbers := map[string]bool{}, map[int]string{}
	for _, one := range s {
		switch {
		case one.Name == "" || len(one.Name) > 100 || strings.ContainsAny(one.Name, "/ ,;=\t\r\n\\"):
			fail("--space: a name has 1 to 100 bytes and no slash, backslash, comma, semicolon, equals sign or blank, unlike %.110q", one.Name)
		case names[one.Name]:
			fail("--space names %s twice", one.Name)
		}
		names[one.Name] = true
		switch {
		case one.Promise != "causal":
			fail("--space %s: no promise is called %.110q; there is causal", one.Name, one.Promise)
		case one.Merge != "" && merges[one.Merge] == nil:
			fail("--space %s: no merge function is called %.110q; there are max and union, or none", one.Name, one.Merge)
		case one.Async && one.Merge != "":
			fail("--space %s: async does not go with merge", one.Name)
		case one.DB < 0 || one.DB > 1023:
			fail("--space %s: db=%d is not a number from 1 to 1023", one.Name, one.DB)
		case one.DB > 0 && numbers[one.DB] != "":
			fail("--space %s: %s has db=%d already", one.Name, numbers[one.DB], one.DB)
		}
		numbers[one.DB] = one.Name
	}
	if k := c.kind(); len(s) > 0 && k != "pebble" && k != "memory" && k != "postgres" {
		fail("--space: causal spaces keep their rows in pebble:, memory: or postgres://, no other store")
	}
	if s.async() && c.Data == "" {
		fail("--space: async acknowledges writes from a log on this node's disk; name a directory for it with --data")
	}
	if s.async() && c.Store == "memory:" {
		fail("--space: async promises to find writes again after a crash; --store memory: loses what they were written over, use pebble: or postgres://")
	}
	return errors.Join(errs...)
}

// async reports whether a space has a log on this node's disk.
func (s Spaces) async() bool {
	return slices.ContainsFunc(s, func(one SpaceConfig) bool { return one.Async })
}

// databases are the numbers that SELECT takes.
func (s Spaces) databases() (out []int) {
	for _, one := range s {
		if one.DB > 0 {
			out = append(out, one.DB)
		}
	}
	return out
}
