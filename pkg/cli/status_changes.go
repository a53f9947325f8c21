package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/rollout"
)

// objectKey tells manifests apart: two files may name one object, one to remove it and one to bring it back.
type objectKey struct {
	id   manifest.ID
	file string
}

// statusChanges tells in lines how an account differs from the one before, which is nil at first; with a
// component, of its manifests only. It is pure.
func statusChanges(before, after *rollout.Snapshot, component string) []string {
	at := after.At.UTC().Format(time.TimeOnly) + "  "
	var lines []string
	if head := changeHead(after); before == nil || head != changeHead(before) {
		lines = append(lines, at+head)
	}
	known := map[objectKey]rollout.Object{}
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

func changeHead(s *rollout.Snapshot) string {
	p := s.Progress
	return fmt.Sprintf("%s %s: %d of %d manifests done (%d%%), %s", p.Mode, oneLine(p.Release.Version),
		p.Done, p.Total, percent(p.Done, p.Total), waitingOn(p))
}

// changeOf tells what became of a manifest; nothing of one that did not change, or that only just came to be known and
// is not held up.
func changeOf(was, o rollout.Object, known bool) string {
	text := oneLine(o.ID.String())
	told := func(state string) string {
		line := fmt.Sprintf("%-8s  %s", state, text)
		if o.Result != "" && o.Result != rollout.Refused && (!known || was.Result != o.Result) {
			line += "  " + string(o.Result)
		}
		return line
	}
	switch held := o.State == rollout.StateWaiting || o.State == rollout.StateFailed; {
	case known && o.Repairs > was.Repairs:
		line := told("repaired") + "  " + oneLine(string(o.LastRepair.Reason))
		if manager := oneLine(o.LastRepair.Manager); manager != "" {
			line += " by " + manager
		}
		return line
	case held && (!known || was.State != o.State || was.Reason != o.Reason || was.Message != o.Message):
		reason, message := oneLine(o.Reason), oneLine(o.Message)
		if reason != "" && message != "" {
			reason += ": "
		}
		return told(string(o.State)) + "  " + reason + message
	case known && !held && (was.State != o.State || was.Result != o.Result):
		return told(string(o.State))
	}
	return ""
}
