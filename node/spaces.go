package node

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/freshet-cache/freshet/node/promise"
)

// SpaceConfig describes one space beside database 0, which is linearizable.
type SpaceConfig = promise.Space

// Spaces are the spaces of a configuration. As a flag they are NAME=PROMISE[,OPTION...], as
// often as there are spaces; in the environment with semicolons between; in YAML a map of
// names to a promise, or to a map of a promise and options.
type Spaces []SpaceConfig

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
	one, err := promise.Parse(text)
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
		if err := one.Decode(n.Content[i+1]); err != nil {
			return err
		}
		*s = append(*s, one)
	}
	return nil
}

// MarshalYAML implements yaml.Marshaler.
func (s Spaces) MarshalYAML() (any, error) {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for _, one := range s {
		n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: one.Name}, one.Encode())
	}
	return n, nil
}

// of are the spaces of a promise.
func (s Spaces) of(promise string) (out []SpaceConfig) {
	for _, one := range s {
		if one.Promise == promise {
			out = append(out, one)
		}
	}
	return out
}

// async reports whether a space has a log on this node's disk.
func (s Spaces) async() bool {
	return slices.ContainsFunc(s, func(one SpaceConfig) bool { return one.Has("async") })
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
