package graph

import (
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/update/nearest"
)

// Limits of an update, so that it fits into a ClusterVersion.
const (
	maxUpdates     = 500 // the CRD limits conditional updates, the size of an object limits the others
	maxUpdateRisks = 200
	// maxQuoted is the maximum length of quoted text in a message.
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

// Updates returns the updates of a version. If the query migrates to multiple architectures, the only update is the version itself.
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
	s.finish(version)
	return s.updates, nil
}

// selection contains the updates found so far.
type selection struct {
	graph   *Graph
	updates Updates
	// images contains the images of all conditional updates, including omitted ones. None of them is recommended unconditionally.
	images map[string]bool
}

func (s *selection) leaveOut(version, format string, args ...any) {
	s.updates.LeftOut = append(s.updates.LeftOut, fmt.Sprintf("%s: %s", printable.Excerpt(version, maxQuoted), fmt.Sprintf(format, args...)))
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
				return invalid("no node for the conditional update to %s", printable.Excerpt(edge.To, maxQuoted))
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
			s.leaveOut(u.Release.Version, "listed as a conditional update %d times", times)
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
				return invalid("edges[%d] refers to node %d, but there are %d nodes", i, end, len(s.graph.Nodes))
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

// finish sorts and limits the updates of the current version.
func (s *selection) finish(current semver.Version) {
	u := &s.updates
	sorted.By(u.Available, release.NewestFirst)
	sorted.By(u.Conditional, release.ConditionalNewestFirst)
	const omitted = "%d %s beyond the limit of %d: " + nearest.Kept
	if n := len(u.Available) - maxUpdates; n > 0 {
		u.LeftOut = append(u.LeftOut, fmt.Sprintf(omitted, n, "updates", maxUpdates))
		u.Available = nearest.First(u.Available, current.String(), func(r configv1.Release) string { return r.Version })[:maxUpdates]
		sorted.By(u.Available, release.NewestFirst)
	}
	if n := len(u.Conditional) - maxUpdates; n > 0 {
		u.LeftOut = append(u.LeftOut, fmt.Sprintf(omitted, n, "conditional updates", maxUpdates))
		u.Conditional = nearest.First(u.Conditional, current.String(), func(c configv1.ConditionalUpdate) string { return c.Release.Version })[:maxUpdates]
		sorted.By(u.Conditional, release.ConditionalNewestFirst)
	}
	slices.Sort(u.LeftOut)
	u.LeftOut = slices.Compact(u.LeftOut)
	if n := len(u.LeftOut) - maxLeftOut; n > 0 {
		u.LeftOut = append(u.LeftOut[:maxLeftOut], fmt.Sprintf("and %d more", n))
	}
}

// release returns the node in the form that a ClusterVersion stores.
func (n Node) release() (configv1.Release, error) {
	r := configv1.Release{Version: n.Version, Image: n.Image}
	if _, err := semver.Parse(n.Version); err != nil {
		return r, fmt.Errorf("%q is not a semantic version", printable.Excerpt(n.Version, maxQuoted))
	}
	switch {
	case n.Image == "":
		return r, fmt.Errorf("no image")
	case len(n.Image) > release.MaxText || len(n.Version) > release.MaxVersion:
		return r, fmt.Errorf("image or version is too long")
	}
	// These fields are only information, so an error in them does not exclude the release.
	if link := n.Metadata[metadataURL]; len(link) <= release.MaxText {
		if _, err := url.Parse(link); err == nil {
			r.URL = configv1.URL(link)
		}
	}
	switch arch := n.Metadata[metadataArchitecture]; arch {
	case "":
	case "multi":
		r.Architecture = configv1.ClusterVersionArchitectureMulti
	default:
		return r, fmt.Errorf("architecture %q is neither empty nor multi", printable.Excerpt(arch, maxQuoted))
	}
	if channels := n.Metadata[metadataChannels]; channels != "" && len(channels) <= release.MaxText {
		list := strings.Split(channels, ",")
		slices.Sort(list)
		r.Channels = slices.Compact(list) // a set
		r.Channels = r.Channels[:min(len(r.Channels), maxChannels)]
	}
	return r, nil
}

// usable returns an update's risks in the form that a ClusterVersion stores, with only those rules that clusters can evaluate. If no
// cluster can evaluate one of the risks, it returns an error, because the update would look safer than it is.
func usable(risks []configv1.ConditionalUpdateRisk) ([]configv1.ConditionalUpdateRisk, error) {
	if len(risks) == 0 {
		return nil, fmt.Errorf("conditional, but without risks")
	}
	var out []configv1.ConditionalUpdateRisk
	for _, risk := range risks {
		name := printable.Excerpt(risk.Name, maxQuoted)
		switch {
		case risk.Name == "" || risk.Message == "":
			return nil, fmt.Errorf("risk %q has no name or no message", name)
		case len(risk.Name) > api.MaxRiskName:
			return nil, fmt.Errorf("the name of risk %q is longer than %d bytes", name, api.MaxRiskName)
		case len(risk.Message) > release.MaxText || len(risk.URL) > release.MaxText:
			return nil, fmt.Errorf("the text of risk %q is longer than %d bytes", name, release.MaxText)
		}
		if _, err := url.ParseRequestURI(risk.URL); err != nil {
			return nil, fmt.Errorf("risk %q has no valid URL", name)
		}
		risk.Conditions = nil // the cluster evaluates whether the risk applies
		risk.MatchingRules = slices.DeleteFunc(slices.Clone(risk.MatchingRules), func(rule configv1.ClusterCondition) bool { return !evaluable(rule) })
		if len(risk.MatchingRules) == 0 || len(risk.MatchingRules) > maxRules {
			return nil, fmt.Errorf("risk %q needs 1 to %d rules that this cluster can evaluate, but has %d", name, maxRules, len(risk.MatchingRules))
		}
		if i := slices.IndexFunc(out, func(r configv1.ConditionalUpdateRisk) bool { return r.Name == risk.Name }); i >= 0 {
			if !reflect.DeepEqual(out[i], risk) {
				return nil, fmt.Errorf("two different risks have the name %q", name)
			}
			continue
		}
		out = append(out, risk)
	}
	if len(out) > maxUpdateRisks {
		return nil, fmt.Errorf("more than %d risks", maxUpdateRisks)
	}
	return out, nil
}

// evaluable reports whether clusters know the type of a rule, and the rule has exactly the fields of that type.
func evaluable(rule configv1.ClusterCondition) bool {
	switch rule.Type {
	case ruleAlways:
		return rule.PromQL == nil
	case rulePromQL:
		return rule.PromQL != nil && rule.PromQL.PromQL != "" && len(rule.PromQL.PromQL) <= release.MaxText
	}
	return false
}
