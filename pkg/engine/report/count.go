package report

import (
	"iter"
	"maps"
	"slices"

	"github.com/cluster-version/cvo/pkg/engine/taskgraph"
)

// Count returns the progress of each runlevel and its components, both in ascending order. manifests yields each manifest's group and
// whether the manifest is done.
func Count(manifests iter.Seq2[taskgraph.Group, bool]) []Runlevel {
	components := map[taskgraph.Group]*Component{}
	for group, done := range manifests {
		c := components[group]
		if c == nil {
			c = &Component{Name: group.Component}
			components[group] = c
		}
		c.Total++
		if done {
			c.Done++
		}
	}
	var levels []Runlevel
	for _, g := range slices.SortedFunc(maps.Keys(components), taskgraph.Group.Compare) {
		if last := len(levels) - 1; last < 0 || levels[last].Runlevel != g.Runlevel {
			levels = append(levels, Runlevel{Runlevel: g.Runlevel})
		}
		level, c := &levels[len(levels)-1], components[g]
		level.Total += c.Total
		level.Done += c.Done
		level.Components = append(level.Components, *c)
	}
	return levels
}
