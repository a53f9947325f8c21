package tree

import (
	"fmt"
	"strings"
	"time"

	"github.com/cluster-version/cvo/internal/terminal"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// objectKey identifies a manifest. Two files may name the same object: one to remove it and one to recreate it.
type objectKey struct {
	id   manifest.ID
	file string
}

// Changes returns one line for each difference between two snapshots. before is nil for the first snapshot. With a component, Changes
// compares only that component's manifests. It has no side effects.
func Changes(before, after *report.Snapshot, component string) []string {
	at := after.At.UTC().Format(time.TimeOnly) + "  "
	var lines []string
	if head := changeHead(after); before == nil || head != changeHead(before) {
		lines = append(lines, at+head)
	}
	known := map[objectKey]report.Object{}
	if before != nil {
		for _, o := range objectsOf(before, component) {
			known[objectKey{o.ID, o.File}] = o
		}
	}
	for _, o := range objectsOf(after, component) {
		was, ok := known[objectKey{o.ID, o.File}]
		if text := changeOf(was, o, ok); text != "" {
			lines = append(lines, at+strings.TrimRight(text, " "))
		}
	}
	return lines
}

func changeHead(s *report.Snapshot) string {
	p := s.Progress
	head := fmt.Sprintf("%s %s: %d of %d manifests done (%d%%), %s", p.Mode, terminal.OneLine(p.Release.Version),
		p.Done, p.Total, percent(p.Done, p.Total), waitingOn(p))
	if s.Rejected != "" {
		head += "; requested release rejected: " + terminal.OneLine(s.Rejected)
	}
	return head
}

// changeOf returns the line for a manifest. It is empty for an unchanged manifest, and for a new manifest that is neither waiting nor
// failed.
func changeOf(was, o report.Object, known bool) string {
	text := terminal.OneLine(o.ID.String())
	describe := func(state string) string {
		line := fmt.Sprintf("%-8s  %s", state, text)
		if o.Result != "" && o.Result != report.Refused && (!known || was.Result != o.Result) {
			line += "  " + string(o.Result)
		}
		return line
	}
	switch held := o.State == report.StateWaiting || o.State == report.StateFailed; {
	case known && o.Repairs > was.Repairs:
		line := describe("repaired") + "  " + terminal.OneLine(string(o.LastRepair.Reason))
		if manager := terminal.OneLine(o.LastRepair.Manager); manager != "" {
			line += " by " + manager
		}
		return line
	case held && (!known || was.State != o.State || was.Reason != o.Reason || was.Message != o.Message):
		reason, message := terminal.OneLine(o.Reason), terminal.OneLine(o.Message)
		if reason != "" && message != "" {
			reason += ": "
		}
		return describe(string(o.State)) + "  " + reason + message
	case known && !held && (was.State != o.State || was.Result != o.Result):
		return describe(string(o.State))
	}
	return ""
}
