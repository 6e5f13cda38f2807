package promise

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Space describes one space beside database 0, which is linearizable.
type Space struct {
	// Name is what clients and other nodes call the space: up to 100 bytes, no slash, backslash, comma,
	// semicolon, equals sign or blank.
	Name string
	// Promise is what the space promises, for instance causal.
	Promise string
	// DB is the number that SELECT takes for the space, 1 to 1023. Default 0: none.
	DB int
	// Options are those of the promise, by name; the value is empty where the name alone was given.
	Options map[string]string
}

// Has reports whether the option was given, with a value or without.
func (s Space) Has(option string) bool {
	_, ok := s.Options[option]
	return ok
}

// Parse reads NAME=PROMISE[,OPTION[=VALUE]...].
func Parse(text string) (s Space, err error) {
	words := strings.Split(text, ",")
	var ok bool
	if s.Name, s.Promise, ok = strings.Cut(strings.TrimSpace(words[0]), "="); !ok {
		return s, fmt.Errorf("%.110q is not a space: say NAME=PROMISE, for instance feeds=causal or carts=causal,merge=union", text)
	}
	for _, w := range words[1:] {
		name, value, _ := strings.Cut(strings.TrimSpace(w), "=")
		if err := s.set(name, value); err != nil {
			return s, err
		}
	}
	return s, nil
}

// set sets an option.
func (s *Space) set(name, value string) (err error) {
	if name == "db" {
		if s.DB, err = strconv.Atoi(value); err != nil || s.DB == 0 {
			return fmt.Errorf("the space %s: db=%.20s is not a number from 1 to 1023", s.Name, value)
		}
		return nil
	}
	if s.Has(name) {
		return fmt.Errorf("the space %s: the option %.110q is given twice", s.Name, name)
	}
	if s.Options == nil {
		s.Options = map[string]string{}
	}
	s.Options[name] = value
	return nil
}

// String is the space as a flag says it.
func (s Space) String() string {
	out := s.Name + "=" + s.Promise
	for _, name := range slices.Sorted(maps.Keys(s.Options)) {
		if out += "," + name; s.Options[name] != "" {
			out += "=" + s.Options[name]
		}
	}
	if s.DB != 0 {
		out += ",db=" + strconv.Itoa(s.DB)
	}
	return out
}

// Decode reads what stands behind the space's name in YAML: a promise, or a map of a promise and
// options.
func (s *Space) Decode(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		s.Promise = n.Value
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: the space %s is neither a promise nor a map of a promise and its options", n.Line, s.Name)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		switch {
		case value.Kind != yaml.ScalarNode:
			return fmt.Errorf("line %d: the space %s: the option %.110q has a value that is no plain word", value.Line, s.Name, name.Value)
		case name.Value == "promise":
			s.Promise = value.Value
			continue
		case value.Tag == "!!bool" && value.Value == "false":
			continue
		}
		text := value.Value
		if value.Tag == "!!bool" {
			text = ""
		}
		if err := s.set(name.Value, text); err != nil {
			return fmt.Errorf("line %d: %w", name.Line, err)
		}
	}
	return nil
}

// Encode is the inverse of Decode.
func (s Space) Encode() *yaml.Node {
	word := func(v string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: v} }
	n := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{word("promise"), word(s.Promise)}}
	for _, name := range slices.Sorted(maps.Keys(s.Options)) {
		value := word(s.Options[name])
		if value.Value == "" {
			value = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "true"}
		}
		n.Content = append(n.Content, word(name), value)
	}
	if s.DB != 0 {
		n.Content = append(n.Content, word("db"), &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.Itoa(s.DB)})
	}
	return n
}
