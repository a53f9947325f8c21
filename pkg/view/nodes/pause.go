package nodes

import (
	"fmt"
	"strings"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// Pause is the pause of a pool, or its end.
type Pause struct {
	Pool string `json:"pool"`
	// Paused is the state after the request, and Changed reports whether it was another one before.
	Paused  bool `json:"paused"`
	Changed bool `json:"changed"`
	// DryRun is the kind of a dry run; empty for a real request.
	DryRun string `json:"dryRun,omitempty"`
	// Config is the pool's config, and Sources are the MachineConfigs that it is rendered from.
	Config  string   `json:"config"`
	Sources []string `json:"sources"`
	// Total is the number of the pool's nodes. Deferred nodes do not start while the pool is paused. Running nodes have started, and finish.
	Total    int `json:"total"`
	Deferred int `json:"deferred"`
	Running  int `json:"running"`
	// Message describes the result for people.
	Message string `json:"message"`
}

// NewPause returns the effect of a pause of a pool, or of its end.
func NewPause(c Cluster, name string, paused bool) (*Pause, error) {
	p, err := c.Find(name)
	if err != nil {
		return nil, err
	}
	members := pool.Assign(c.Pools, c.Nodes)
	nodes := members.Nodes[name]
	result := &Pause{
		Pool: name, Paused: paused, Changed: paused != p.Spec.Paused, Config: p.Spec.Configuration.Name, Sources: []string{}, Total: len(nodes),
	}
	for _, source := range p.Spec.Configuration.Source {
		result.Sources = append(result.Sources, source.Name)
	}
	for _, n := range nodes {
		switch {
		case pool.HoldsSlot(n):
			result.Running++
		case n.Annotations[api.DesiredConfigAnnotation] != result.Config:
			result.Deferred++
		}
	}
	most, err := pool.MaxUnavailable(p, len(nodes))
	if err != nil {
		most = 0
	}
	result.Message = result.message(most, members.Selectors)
	return result, nil
}

// message describes the result. most is the number of nodes that may be unavailable; 0 if it is invalid.
func (r *Pause) message(most int, selectors pool.Selectors) string {
	parts := []string{fmt.Sprintf("MachineConfigPool %s is %s", r.Pool, r.state())}
	config := r.Config
	if len(r.Sources) > 0 {
		config += fmt.Sprintf(" (rendered from %s)", printable.List(r.Sources, mostNames))
	}
	update := fmt.Sprintf("the update of %d of %s to %s", r.Deferred, printable.Count(r.Total, "node"), config)
	begins := "is pending"
	if r.Changed {
		begins = "starts"
	}
	switch {
	case r.Config == "":
		parts = append(parts, "it has no rendered config yet")
	case selectors.Invalid[r.Pool] != "":
		parts = append(parts, "its nodes are not known: "+selectors.Invalid[r.Pool])
	case r.Deferred == 0:
		parts = append(parts, "no node waits for "+r.Config)
	case r.Paused:
		parts = append(parts, "this defers "+update)
	case selectors.Doubt(r.Pool) != "":
		parts = append(parts, update+" cannot start: each node "+selectors.Doubt(r.Pool))
	case most == 0:
		parts = append(parts, update+" cannot start, because spec.maxUnavailable is invalid")
	default:
		parts = append(parts, fmt.Sprintf("%s %s, at most %d at a time", update, begins, most))
	}
	if r.Running > 0 {
		parts = append(parts, fmt.Sprintf("%s already started, and will finish", printable.Count(r.Running, "node")))
	}
	return strings.Join(parts, "; ")
}

func (r *Pause) state() string {
	switch {
	case r.Paused && r.Changed:
		return "paused"
	case r.Paused:
		return "already paused (no change)"
	case r.Changed:
		return "no longer paused"
	}
	return "not paused (no change)"
}
