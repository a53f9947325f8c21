package updategraph

import (
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
)

// What an update may be at most, so that a ClusterVersion can hold it.
const (
	maxUpdates     = 500 // conditional ones by the CRD, the others by the size of an object
	maxUpdateRisks = 200
	maxName        = 256
	maxText        = 8 << 10
	// maxQuoted is how much of a text a message quotes.
	maxQuoted   = 80
	maxRules    = 20
	maxChannels = 100
	maxLeftOut  = 20
)

// Rule types that clusters can evaluate.
const (
	ruleAlways = "Always"
	rulePromQL = "PromQL"
)

// Updates returns the updates of a version. If the question is about the way to a release of many architectures, the
// only one is the version itself.
func (g *Graph) Updates(q Query) (Updates, error) {
	version, err := semver.Parse(q.Version)
	if err != nil {
		return Updates{}, &Error{Reason: ReasonInvalidRequest, Err: fmt.Errorf("version %q: %w", q.Version, err)}
	}
	current := slices.IndexFunc(g.Nodes, func(n Node) bool {
		v, err := semver.Parse(n.Version)
		return err == nil && v.EQ(version)
	})
	if current < 0 {
		return Updates{}, &Error{Reason: ReasonVersionNotFound, Err: fmt.Errorf("currently reconciling cluster version %s not found in the %q channel", q.Version, q.Channel)}
	}
	s := selection{graph: g, images: map[string]bool{}}
	if s.updates.Current, err = g.Nodes[current].release(); err != nil {
		return Updates{}, invalid("release %s: %w", q.Version, err)
	}
	if q.Migrate {
		s.updates.Current.Architecture = configv1.ClusterVersionArchitectureMulti
		s.updates.Available = []configv1.Release{s.updates.Current}
		return s.updates, nil
	}
	if err := s.conditional(g.Nodes[current].Version); err != nil {
		return Updates{}, err
	}
	if err := s.available(current); err != nil {
		return Updates{}, err
	}
	s.finish()
	return s.updates, nil
}

// selection is the updates as far as they have been found.
type selection struct {
	graph   *Graph
	updates Updates
	// images are those of conditional updates, left out or not: none of them is recommended to every cluster.
	images map[string]bool
}

func (s *selection) leaveOut(version, format string, args ...any) {
	s.updates.LeftOut = append(s.updates.LeftOut, fmt.Sprintf("%s: %s", api.Excerpt(version, maxQuoted), fmt.Sprintf(format, args...)))
}

func (s *selection) conditional(from string) error {
	nodes := map[string]int{}
	for i, node := range slices.Backward(s.graph.Nodes) {
		nodes[node.Version] = i
	}
	seen := map[string]int{}
	for _, group := range s.graph.ConditionalEdges {
		var risks []configv1.ConditionalUpdateRisk
		var problem error
		judged := false
		for _, edge := range group.Edges {
			if edge.From != from || edge.To == from {
				continue
			}
			target, ok := nodes[edge.To]
			if !ok {
				return invalid("there is no node for the conditional update to %s", api.Excerpt(edge.To, maxQuoted))
			}
			if seen[edge.To]++; seen[edge.To] > 1 {
				continue
			}
			s.images[s.graph.Nodes[target].Image] = true
			if !judged {
				risks, problem = usable(group.Risks)
				judged = true
			}
			if problem != nil {
				s.leaveOut(edge.To, "%v", problem)
				continue
			}
			r, err := s.graph.Nodes[target].release()
			if err != nil {
				s.leaveOut(edge.To, "%v", err)
				continue
			}
			s.updates.Conditional = append(s.updates.Conditional, configv1.ConditionalUpdate{Release: r, Risks: slices.Clone(risks)})
		}
	}
	s.updates.Conditional = slices.DeleteFunc(s.updates.Conditional, func(u configv1.ConditionalUpdate) bool {
		if times := seen[u.Release.Version]; times > 1 {
			s.leaveOut(u.Release.Version, "it is a conditional update %d times", times)
			return true
		}
		return false
	})
	return nil
}

func (s *selection) available(current int) error {
	seen := map[string]bool{}
	for i, edge := range s.graph.Edges {
		for _, end := range []int{edge.From, edge.To} {
			if end < 0 || end >= len(s.graph.Nodes) {
				return invalid("edges[%d] names node %d, and there are %d", i, end, len(s.graph.Nodes))
			}
		}
		target := s.graph.Nodes[edge.To]
		if edge.From != current || edge.To == current || seen[target.Image] || s.images[target.Image] {
			continue
		}
		seen[target.Image] = true
		r, err := target.release()
		if err != nil {
			s.leaveOut(target.Version, "%v", err)
			continue
		}
		s.updates.Available = append(s.updates.Available, r)
	}
	return nil
}

// finish sorts and bounds what was found.
func (s *selection) finish() {
	u := &s.updates
	slices.SortFunc(u.Available, release.NewestFirst)
	slices.SortFunc(u.Conditional, func(a, b configv1.ConditionalUpdate) int { return release.NewestFirst(a.Release, b.Release) })
	if n := len(u.Available) - maxUpdates; n > 0 {
		u.LeftOut = append(u.LeftOut, fmt.Sprintf("the %d lowest of more than %d updates", n, maxUpdates))
		u.Available = u.Available[:maxUpdates]
	}
	if n := len(u.Conditional) - maxUpdates; n > 0 {
		u.LeftOut = append(u.LeftOut, fmt.Sprintf("the %d lowest of more than %d conditional updates", n, maxUpdates))
		u.Conditional = u.Conditional[:maxUpdates]
	}
	slices.Sort(u.LeftOut)
	u.LeftOut = slices.Compact(u.LeftOut)
	if n := len(u.LeftOut) - maxLeftOut; n > 0 {
		u.LeftOut = append(u.LeftOut[:maxLeftOut], fmt.Sprintf("and %d more", n))
	}
}

// release is the node as a ClusterVersion has it.
func (n Node) release() (configv1.Release, error) {
	r := configv1.Release{Version: n.Version, Image: n.Image}
	if _, err := semver.Parse(n.Version); err != nil {
		return r, fmt.Errorf("%q is no semantic version", api.Excerpt(n.Version, maxQuoted))
	}
	switch {
	case n.Image == "":
		return r, fmt.Errorf("it has no image")
	case len(n.Image) > maxText || len(n.Version) > maxName:
		return r, fmt.Errorf("its image or version is too long")
	}
	// These only inform: what is wrong with them does not speak against the release.
	if link := n.Metadata[metadataURL]; len(link) <= maxText {
		if _, err := url.Parse(link); err == nil {
			r.URL = configv1.URL(link)
		}
	}
	switch arch := n.Metadata[metadataArchitecture]; arch {
	case "":
	case "multi":
		r.Architecture = configv1.ClusterVersionArchitectureMulti
	default:
		return r, fmt.Errorf("its architecture is %q, which is neither multi nor left out", api.Excerpt(arch, maxQuoted))
	}
	if channels := n.Metadata[metadataChannels]; channels != "" && len(channels) <= maxText {
		list := strings.Split(channels, ",")
		slices.Sort(list)
		r.Channels = slices.Compact(list) // a set
		r.Channels = r.Channels[:min(len(r.Channels), maxChannels)]
	}
	return r, nil
}

// usable are the risks of an update as a ClusterVersion can hold them, with those of their rules that clusters can
// evaluate. An update with a risk that nobody could judge is none: it would look safer than it is.
func usable(risks []configv1.ConditionalUpdateRisk) ([]configv1.ConditionalUpdateRisk, error) {
	if len(risks) == 0 {
		return nil, fmt.Errorf("it is conditional, and has no risks")
	}
	var out []configv1.ConditionalUpdateRisk
	for _, risk := range risks {
		name := api.Excerpt(risk.Name, maxQuoted)
		switch {
		case risk.Name == "" || risk.Message == "":
			return nil, fmt.Errorf("risk %q has no name or no message", name)
		case len(risk.Name) > maxName:
			return nil, fmt.Errorf("the name of risk %q is longer than %d bytes", name, maxName)
		case len(risk.Message) > maxText || len(risk.URL) > maxText:
			return nil, fmt.Errorf("risk %q is told in more than %d bytes", name, maxText)
		}
		if _, err := url.ParseRequestURI(risk.URL); err != nil {
			return nil, fmt.Errorf("risk %q has no valid URL", name)
		}
		risk.Conditions = nil // whether it applies is for the cluster to find out
		risk.MatchingRules = slices.DeleteFunc(slices.Clone(risk.MatchingRules), func(rule configv1.ClusterCondition) bool { return !evaluable(rule) })
		if len(risk.MatchingRules) == 0 || len(risk.MatchingRules) > maxRules {
			return nil, fmt.Errorf("risk %q has %d rules that this cluster can evaluate, not 1 to %d", name, len(risk.MatchingRules), maxRules)
		}
		if i := slices.IndexFunc(out, func(r configv1.ConditionalUpdateRisk) bool { return r.Name == risk.Name }); i >= 0 {
			if !reflect.DeepEqual(out[i], risk) {
				return nil, fmt.Errorf("it has two different risks %q", name)
			}
			continue
		}
		out = append(out, risk)
	}
	if len(out) > maxUpdateRisks {
		return nil, fmt.Errorf("it has more than %d risks", maxUpdateRisks)
	}
	return out, nil
}

// evaluable reports whether a rule is of a type that clusters know, and has what that type asks for and nothing else.
func evaluable(rule configv1.ClusterCondition) bool {
	switch rule.Type {
	case ruleAlways:
		return rule.PromQL == nil
	case rulePromQL:
		return rule.PromQL != nil && rule.PromQL.PromQL != "" && len(rule.PromQL.PromQL) <= maxText
	}
	return false
}
