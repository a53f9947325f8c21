package property

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// shrinkFor limits the search for a shorter history.
const shrinkFor = 40 * time.Second

// shrink removes objects, steps and changes as long as the first violated property is still violated.
func shrink(ctx context.Context, driver Driver, others client.Client, sc scenario, failed *run, name string) (scenario, *run) {
	until := time.Now().Add(shrinkFor)
	attempt := 0
	try := func(next scenario) bool {
		if time.Now().After(until) {
			return false
		}
		attempt++
		r, err := play(ctx, driver, others, next, fmt.Sprintf("%s-%d", name, attempt))
		if err != nil || !slices.ContainsFunc(r.violations, func(v violation) bool { return v.property == failed.violations[0].property }) {
			return false
		}
		sc, failed = next, r
		return true
	}
	for again := true; again && time.Now().Before(until); {
		again = shrinkObjects(&sc, try)
		again = shrinkSteps(&sc, try) || again
		again = shrinkOps(&sc, try) || again
		again = shrinkFields(&sc, try) || again
	}
	return sc, failed
}

func shrinkObjects(sc *scenario, try func(scenario) bool) (shorter bool) {
	ids, _ := sc.ids()
	for _, id := range ids {
		if id == "Namespace "+place {
			continue
		}
		without := func(list []declared) []declared {
			return slices.DeleteFunc(slices.Clone(list), func(d declared) bool { return d.id() == id })
		}
		next := scenario{a: without(sc.a), b: without(sc.b)}
		next.steps = slices.DeleteFunc(slices.Clone(sc.steps), func(s step) bool { return s.edit != nil && s.edit.object == id })
		shorter = try(next) || shorter
	}
	return shorter
}

func shrinkSteps(sc *scenario, try func(scenario) bool) (shorter bool) {
	for i := range slices.Backward(sc.steps) {
		next := *sc
		next.steps = slices.Delete(slices.Clone(sc.steps), i, i+1)
		shorter = try(next) || shorter
	}
	return shorter
}

func shrinkOps(sc *scenario, try func(scenario) bool) (shorter bool) {
	for i := range sc.steps {
		for j := 0; sc.steps[i].edit != nil && j < len(sc.steps[i].edit.ops); {
			next := *sc
			next.steps = slices.Clone(sc.steps)
			e := *next.steps[i].edit
			e.ops = slices.Delete(slices.Clone(e.ops), j, j+1)
			next.steps[i].edit = &e
			if try(next) {
				shorter = true
			} else {
				j++
			}
		}
	}
	return shorter
}

// shrinkFields removes the slots of manifests, first from both releases at once and then from each.
func shrinkFields(sc *scenario, try func(scenario) bool) (shorter bool) {
	ids, byID := sc.ids()
	for _, id := range ids {
		for _, s := range byID[id].kind.slots {
			if s.required {
				continue
			}
			for _, in := range []string{"AB", "A", "B"} {
				next := *sc
				changed := false
				drop := func(list []declared) []declared {
					list = slices.Clone(list)
					for i, d := range list {
						if _, ok := getAt(d.object, s.at); d.id() == id && ok {
							list[i].object = clone(d.object)
							removeAt(list[i].object, s.at)
							changed = true
						}
					}
					return list
				}
				if in != "B" {
					next.a = drop(next.a)
				}
				if in != "A" {
					next.b = drop(next.b)
				}
				if changed && try(next) {
					shorter = true
					break
				}
			}
		}
	}
	return shorter
}

// statistics counts the actions of all histories.
type statistics struct {
	sync.Mutex
	runs, objects, edits, refused int
	how, kinds, excused           map[string]int
}

func (s *statistics) add(sc scenario, r *run) {
	s.Lock()
	defer s.Unlock()
	if s.how == nil {
		s.how, s.kinds, s.excused = map[string]int{}, map[string]int{}, map[string]int{}
	}
	s.runs++
	s.edits += r.edits
	s.refused += r.refused
	for _, e := range r.excused {
		_, why, _ := strings.Cut(e, ": ")
		s.excused[why]++
	}
	_, byID := sc.ids()
	s.objects += len(byID)
	for _, d := range byID {
		s.kinds[d.kind.name]++
	}
	for _, st := range sc.steps {
		if st.edit != nil {
			s.how[st.edit.how]++
		}
	}
}

func (s *statistics) log(t *testing.T) {
	t.Helper()
	t.Logf("%d histories, %d objects %v, %d edits %v, %d of them rejected by the API server; objects removed from the history: %v",
		s.runs, s.objects, s.kinds, s.edits, s.how, s.refused, s.excused)
}
