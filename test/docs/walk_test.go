package docs_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// walk is what a reader does who goes through pages from top to bottom in one place.
type walk struct {
	name  string
	pages []string
	// prepare makes what the first page takes for granted.
	prepare func(*sandbox)
	// before has what happens in the world before a command that begins so; each happens once.
	before []event
	// after checks what has come of it.
	after func(*sandbox)
	// replaced are words of the pages that mean something else in the sandbox, as pairs.
	replaced []string
}

type event struct {
	command string
	happens func(*sandbox)
}

// TestWalks goes through the documentation as its readers do: every command is run as it is written, in the order of the
// page, and prints what the page shows.
func TestWalks(t *testing.T) {
	t.Parallel()
	for _, w := range walks() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			w.walk(t)
		})
	}
}

// TestEveryCommandIsWalked checks that what is not run says why, right before its block, and lists that.
func TestEveryCommandIsWalked(t *testing.T) {
	t.Parallel()
	walked := map[string]bool{}
	for _, w := range walks() {
		for _, page := range w.pages {
			assert.False(t, walked[page], "%s is walked twice", page)
			walked[page] = true
		}
	}
	total, run := 0, 0
	marked := map[string]int{}
	for _, page := range commandPages(t) {
		for _, b := range readBlocks(t, page) {
			switch {
			case b.notRun != "":
				marked[b.notRun] += len(b.commands)
				total += len(b.commands)
			case walked[page]:
				run += len(b.commands)
			default:
				assert.Empty(t, b.commands, "%s:%d: no walk runs this block, and it does not say why", page, b.line)
			}
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(marked)) {
		t.Logf("%2d not run: %s", marked[reason], reason)
	}
	t.Logf("%d commands are run, %d are not", run, total)
}

func (w walk) walk(t *testing.T) {
	s := newSandbox(t)
	s.replaced = append(s.replaced, w.replaced...)
	if w.prepare != nil {
		w.prepare(s)
	}
	events := slices.Clone(w.before)
	for _, page := range w.pages {
		for _, b := range readBlocks(t, page) {
			if b.notRun != "" {
				continue
			}
			for _, c := range b.commands {
				at := slices.IndexFunc(events, func(e event) bool { return strings.HasPrefix(s.resolve(c.text), e.command) })
				if at >= 0 {
					events[at].happens(s)
					events = slices.Delete(events, at, at+1)
				}
				if b.notCompared != "" {
					c.output = nil
				}
				s.run(page, c)
			}
		}
	}
	for _, e := range events {
		assert.Fail(t, "no page has this command any more", "%q", e.command)
	}
	if w.after != nil {
		w.after(s)
	}
	t.Logf("%d commands run", s.ran)
}

// script is an event that takes commands.
func script(format string, args ...any) func(*sandbox) {
	return func(s *sandbox) { s.shell(fmt.Sprintf(format, args...)) }
}

// installed is a cluster with 1.0.0 of the example platform.
func installed(s *sandbox) {
	s.releases()
	s.cluster()
	s.shell(s.resolve("cvo install --wait=none --release-image registry.example.com/platform/release@sha256:… --trust trust.yaml"))
	s.pods("1.0.0")
	s.shell("cvo upgrade wait --timeout=100s")
}

func walks() []walk {
	return []walk{
		{
			name:  "make",
			pages: []string{"docs/user/make-your-own-platform.md"},
		},
		{
			name: "look",
			pages: []string{
				"docs/user/compare-releases.md", "docs/user/inspect-releases.md", "docs/user/lint.md", "docs/user/permissions.md",
				"docs/user/metrics.md", "docs/user/trust.md", "examples/platform/README.md",
			},
			before: []event{{"cvo release keygen", script("rm -r keys")}},
			prepare: func(s *sandbox) {
				s.releases()
				for _, folder := range []string{"release:1.0.0", "release-1.0.0:1.0.0", "release-1.1.0:1.1.0"} {
					name, version, _ := strings.Cut(folder, ":")
					s.shell("cvo release extract --quiet registry.example.com/platform/release:" + version + " --layout image --to " + name)
				}
				s.cluster()
			},
			replaced: []string{
				"registry.example/platform/release:2.0.0", "registry.example.com/platform/release:1.1.0",
				"mirror.example/platform/release:2.0.0", "registry.example.com/platform/release:1.1.0",
				"platform/release:2.0.0", "platform/release:1.1.0", "registry.example/", "registry.example.com/",
			},
		},
		{
			name:    "install",
			pages:   []string{"docs/user/install.md"},
			prepare: func(s *sandbox) { s.releases(); s.cluster() },
			before: []event{
				{"cvo install --release-image", func(s *sandbox) { s.deployed("1.0.0") }},
			},
		},
		{
			name: "update",
			pages: []string{
				"docs/user/status.md", "docs/user/conditions.md", "docs/user/troubleshoot.md", "docs/user/serving-certificates.md",
				"docs/user/pause.md", "docs/user/update.md", "docs/user/whose-fields.md",
			},
			prepare: installed,
			before: []event{
				{"kubectl patch clusterversion version --type merge -p '{\"spec\":{\"desiredUpdate\":null", func(s *sandbox) { s.eventually("kubectl events -n openshift-cluster-version | grep 'Completed 1.1.0'") }},
			},
		},
		{
			name:  "upgrade",
			pages: []string{"docs/user/upgrade.md"},
			prepare: func(s *sandbox) {
				installed(s)
				s.shell(`kubectl patch clusterversion version --type=merge -p '{"spec":{"upstream":"https://updates.example.com/graph","channel":"stable"}}'`)
				s.eventually("kubectl get clusterversion version -o json | jq -e '.status.availableUpdates[0]'")
			},
			replaced: []string{
				"4.14.3", "1.1.0", "4.15.3", "1.1.0", "1.2.3", "1.1.0", "4.14.1", "1.0.0", "4.15.1", "1.0.0", "stable-4.14", "stable", "fast-4.14", "fast",
				"registry.example/", "registry.example.com/",
			},
		},
		{
			name:    "updates",
			pages:   []string{"docs/user/updates.md"},
			prepare: installed,
			before: []event{
				{"kubectl get clusterversion version -o json | jq -r '.status.available", func(s *sandbox) {
					s.eventually("kubectl get clusterversion version -o json | jq -e '.status.availableUpdates[0]'")
				}},
			},
			replaced: []string{"1.2.3", "1.1.0"},
		},
		{
			name:    "air-gapped",
			pages:   []string{"docs/user/air-gapped.md"},
			prepare: func(s *sandbox) { s.releases(); s.cluster() },
			before: []event{
				{"cvo install", func(s *sandbox) { s.deployed("1.0.0", "mirror.example.com/platform") }},
			},
		},
		{
			name:    "migrate",
			pages:   []string{"docs/user/migrate.md"},
			prepare: original,
			before: []event{
				{"cvo release keygen", script("rm -r keys")},
				{"cvo upgrade wait", func(s *sandbox) { s.pods("1.0.0", "registry.example.com/platform/moved") }},
			},
			replaced: []string{"--to-image-base", "--mapping-file images.mapping --from-dir examples/platform/1.0.0 --to-image-base"},
			after:    movedOver,
		},
	}
}

// original is a cluster as the original operator leaves it: the objects of a release, written by updates.
func original(s *sandbox) {
	s.releases()
	s.cluster()
	s.shell("cvo release extract --quiet registry.example.com/platform/release:1.0.0 --to written")
	s.shell("cvo install --no-operator --release-image registry.example.com/platform/release:1.0.0 --trust trust.yaml")
	// Namespaces and definitions come first in the order of names, but for those that a later runlevel defines.
	s.shell(`for i in 1 2; do kubectl create --field-manager=cluster-version-operator -f written; done >/dev/null 2>&1; true`)
	s.shell(`kubectl -n openshift-cluster-version create deployment cluster-version-operator --image registry.example.com/original:v1 --dry-run=client -o json |
jq '.spec.selector.matchLabels = {"k8s-app": .metadata.name} | .spec.template.metadata.labels = .spec.selector.matchLabels' | kubectl create -f -`)
	s.shell(s.resolve(`kubectl patch clusterversion version --subresource=status --type=merge -p '{"status":{"desired":{"version":"1.0.0",` +
		`"image":"registry.example.com/platform/release@sha256:…"},"observedGeneration":1,"versionHash":"","availableUpdates":[],"history":[{"state":"Completed",` +
		`"version":"1.0.0","image":"registry.example.com/platform/release@sha256:…","startedTime":"2026-01-01T00:00:00Z",` +
		`"completionTime":"2026-01-01T01:00:00Z","verified":true}],"conditions":[]}}'`))
	owned := s.shell(owners)
	require.Contains(s, owned, "cluster-version-operator Update")
}

// owners lists who owns fields of what the release brought, and how.
const owners = `kubectl get deployments,services,configmaps,serviceaccounts -A --show-managed-fields -o json | jq -r '.items[] |
select(.metadata.namespace | startswith("example-")) | .metadata.managedFields[] | select(.subresource == null) | .manager + " " + .operation' | sort | uniq -c`

// movedOver checks that what the original wrote is applied now, and that the history goes on.
func movedOver(s *sandbox) {
	owned := s.shell(owners)
	// Entries of the original stay where the release has all their fields; a field that it drops later goes with them.
	assert.Contains(s, owned, "cluster-version-operator Apply")
	history := s.shell("kubectl get clusterversion version -o json | jq -r '.status.history[] | .state + \" \" + .image'")
	lines := strings.Split(strings.TrimSpace(history), "\n")
	require.Len(s, lines, 2)
	assert.Contains(s, lines[0], "Completed registry.example.com/platform/moved@")
	assert.Contains(s, lines[1], "Completed registry.example.com/platform/release@")
}
