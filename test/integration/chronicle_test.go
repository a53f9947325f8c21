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
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
)

// chronicle records the status of the ClusterVersion over time: the sequence of texts of each condition and of the history. It omits counts
// and short steps of an acceptance, which depend on the time of observation. The record is therefore the same on slow and fast machines.
type chronicle struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	names  map[string]string
	tracks map[string][]string
	// seen is the resource version of the last ClusterVersion from the watch; empty before the first one.
	seen string
	// onLine is called with each new line of a track; nil for no call.
	onLine func(track, line string)
}

// keepChronicle records the ClusterVersion until close.
func keepChronicle(t *testing.T, c client.WithWatch) *chronicle {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background()) //nolint:usetesting // ends with close, during a test
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

// name replaces a text that differs from run to run.
func (k *chronicle) name(text, as string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.names[text] = as
}

// listen calls a function with each new line from now on; nil stops the calls.
func (k *chronicle) listen(reported func(track, line string)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.onLine = reported
}

// towards matches the target of an update without the progress and the pending gates, which depend on the time of observation. held matches
// the runlevel at which an update is paused.
var (
	towards = regexp.MustCompile(`^Working towards \S*[^\s:,]`)
	held    = regexp.MustCompile(`paused before runlevel \d+$`)
)

// volatileText matches times, addresses and digests in messages.
var volatileText = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|127\.0\.0\.1:\d+|sha256:[0-9a-f]{64}`)

func (k *chronicle) note(cv *configv1.ClusterVersion) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seen = cv.ResourceVersion
	seen := map[string]bool{}
	for _, c := range cv.Status.Conditions {
		track := string(c.Type)
		seen[track] = true
		if c.Type == api.ReleaseAccepted && c.Status == configv1.ConditionUnknown {
			continue // the step may be too short to be observed
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

// none stands for a missing condition.
const none = "(none)"

// fleeting reports whether a line shows that a blocked update continues. The update may complete before that state is observed.
func fleeting(last, line string) bool {
	_, version, going := strings.Cut(line, "Working towards ")
	return going && (strings.Contains(last, "Unable to apply "+version+":") || strings.Contains(last, "Working towards "+version+", paused"))
}

func (k *chronicle) write(track, line string) {
	for _, text := range slices.SortedFunc(maps.Keys(k.names), func(a, b string) int { return len(b) - len(a) }) {
		line = strings.ReplaceAll(line, text, k.names[text])
	}
	line = strings.ReplaceAll(volatileText.ReplaceAllString(line, "<passing>"), "\n", "\n      ")
	lines := k.tracks[track]
	if last := len(lines) - 1; last >= 0 && (lines[last] == line || fleeting(lines[last], line)) {
		return
	} else if last > 0 && lines[last] == none {
		// Whether the condition was missing in between depends on the time of observation.
		if lines = lines[:last]; lines[last-1] == line {
			k.tracks[track] = lines
			return
		}
	}
	k.tracks[track] = append(lines, line)
	if k.onLine != nil {
		k.onLine(track, line)
	}
}

// chapter returns the lines since the last chapter and starts a new one with the current line of each track.
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

// hasSeen reports whether the watch has delivered this version of the ClusterVersion, or a later one.
func (k *chronicle) hasSeen(cv *configv1.ClusterVersion) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	order, err := resourceversion.CompareResourceVersion(k.seen, cv.ResourceVersion)
	return err == nil && order >= 0
}

// settled waits until the chronicle has seen the current ClusterVersion. It does not note what it reads: the watch may lag behind a read, and
// would then report earlier states after it.
func (k *chronicle) settled(t *testing.T, c client.Client) {
	t.Helper()
	cv := &configv1.ClusterVersion{}
	require.Eventually(t, func() bool {
		if err := c.Get(t.Context(), client.ObjectKey{Name: "version"}, cv); err != nil {
			return false
		}
		return cv.Status.ObservedGeneration == cv.Generation && !says(api.ReleaseAccepted, "Unknown|")(cv) && k.hasSeen(cv)
	}, 2*time.Minute, 50*time.Millisecond)
}
