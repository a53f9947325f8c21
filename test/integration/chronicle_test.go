package integration_test

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
)

// chronicle writes down what the status of the ClusterVersion says over time: for each condition, and for the history,
// what it says one after the other. How far a count had come when somebody looked, and steps of an acceptance that may
// be too short to be seen, are left out, so that the same life reads the same on a slow machine and on a fast one.
type chronicle struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	names  map[string]string
	tracks map[string][]string
	// told is called with each new line of a track.
	told func(track, line string)
}

// keepChronicle follows the ClusterVersion from now on, until close.
func keepChronicle(t *testing.T, c client.WithWatch) *chronicle {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background()) //nolint:usetesting // it ends with close, in the middle of a test
	k := &chronicle{cancel: cancel, done: make(chan struct{}), names: map[string]string{}, tracks: map[string][]string{}}
	go func() {
		defer close(k.done)
		for ctx.Err() == nil {
			w, err := c.Watch(ctx, &configv1.ClusterVersionList{})
			if err != nil {
				select {
				case <-ctx.Done():
				case <-time.After(50 * time.Millisecond):
				}
				continue
			}
			for e := range w.ResultChan() {
				if cv, ok := e.Object.(*configv1.ClusterVersion); ok && e.Type != watch.Deleted {
					k.note(cv)
				}
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-k.done
	})
	return k
}

// name has a text that differs from run to run written as another.
func (k *chronicle) name(text, as string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.names[text] = as
}

// listen has each new line told; nil for nobody.
func (k *chronicle) listen(told func(track, line string)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.told = told
}

// towards is what an update is for, without how far it had come or what it waited on when somebody looked, and held is
// where it is held back.
var (
	towards = regexp.MustCompile(`^Working towards \S*[^\s:,]`)
	held    = regexp.MustCompile(`paused before runlevel \d+$`)
)

// passing are times, addresses and digests in messages.
var passing = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|127\.0\.0\.1:\d+|sha256:[0-9a-f]{64}`)

func (k *chronicle) note(cv *configv1.ClusterVersion) {
	k.mu.Lock()
	defer k.mu.Unlock()
	seen := map[string]bool{}
	for _, c := range cv.Status.Conditions {
		track := string(c.Type)
		seen[track] = true
		if c.Type == api.ReleaseAccepted && c.Status == configv1.ConditionUnknown {
			continue // a step that may be over before anybody sees it
		}
		reason, message := c.Reason, c.Message
		if short := towards.FindString(message); short != "" {
			reason, message = "", strings.TrimSuffix(short+", "+held.FindString(message), ", ")
		}
		k.write(track, strings.TrimSpace(fmt.Sprintf("%s %s: %s", c.Status, reason, message)))
	}
	for _, track := range slices.Collect(maps.Keys(k.tracks)) {
		if !seen[track] && track != "History" && track != "Desired" && track != "Capabilities" {
			k.write(track, none)
		}
	}
	var history []string
	for _, e := range cv.Status.History[:min(len(cv.Status.History), 2)] {
		line := fmt.Sprintf("%s %s", e.Version, e.State)
		if e.Verified {
			line += " verified"
		}
		if e.AcceptedRisks != "" {
			line += " risks"
		}
		history = append(history, line)
	}
	k.write("History", strings.Join(history, ", "))
	if cv.Status.Desired.Version != "" {
		k.write("Desired", cv.Status.Desired.Version)
	}
	enabled := make([]string, len(cv.Status.Capabilities.EnabledCapabilities))
	for i, c := range cv.Status.Capabilities.EnabledCapabilities {
		enabled[i] = string(c)
	}
	if len(enabled) > 0 {
		k.write("Capabilities", strings.Join(enabled, " "))
	}
}

// none is what a condition says that is not there.
const none = "(none)"

// fleeting reports whether a line says that an update goes on that was held up before: it may be complete before
// anybody sees that.
func fleeting(last, line string) bool {
	_, version, going := strings.Cut(line, "Working towards ")
	return going && (strings.Contains(last, "Unable to apply "+version+":") || strings.Contains(last, "Working towards "+version+", paused"))
}

func (k *chronicle) write(track, line string) {
	for _, text := range slices.SortedFunc(maps.Keys(k.names), func(a, b string) int { return len(b) - len(a) }) {
		line = strings.ReplaceAll(line, text, k.names[text])
	}
	line = strings.ReplaceAll(passing.ReplaceAllString(line, "<passing>"), "\n", "\n      ")
	lines := k.tracks[track]
	if last := len(lines) - 1; last >= 0 && (lines[last] == line || fleeting(lines[last], line)) {
		return
	} else if last > 0 && lines[last] == none {
		// Whether nothing was to be told in between depends on when somebody looked.
		if lines = lines[:last]; lines[last-1] == line {
			k.tracks[track] = lines
			return
		}
	}
	k.tracks[track] = append(lines, line)
	if k.told != nil {
		k.told(track, line)
	}
}

// chapter returns what was written since the last chapter, and begins the next with what each track says now.
func (k *chronicle) chapter() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var b strings.Builder
	for _, track := range slices.Sorted(maps.Keys(k.tracks)) {
		lines := k.tracks[track]
		k.tracks[track] = lines[len(lines)-1:]
		if len(lines) == 1 {
			continue
		}
		fmt.Fprintf(&b, "  %s\n", track)
		for _, line := range lines {
			fmt.Fprintf(&b, "    %s\n", line)
		}
	}
	return b.String()
}

// settled waits until the chronicle has seen the ClusterVersion that is there now.
func (k *chronicle) settled(t *testing.T, c client.Client) {
	t.Helper()
	cv := &configv1.ClusterVersion{}
	require.Eventually(t, func() bool {
		if err := c.Get(t.Context(), client.ObjectKey{Name: "version"}, cv); err != nil {
			return false
		}
		return cv.Status.ObservedGeneration == cv.Generation && !says(api.ReleaseAccepted, "Unknown|")(cv)
	}, 30*time.Second, 50*time.Millisecond)
	k.note(cv)
}
