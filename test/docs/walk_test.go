package docs_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/test/fixture"
	objects "github.com/cluster-version/cvo/test/installed"
	"github.com/cluster-version/cvo/test/ring"
)

// walk is a reader who follows pages from top to bottom in one sandbox.
type walk struct {
	name  string
	pages []string
	// prepare creates the state that the first page assumes.
	prepare func(*sandbox)
	// before lists events. Each has the beginning of the command before which it happens; a line break at its end makes it the whole
	// command. Each event happens once.
	before []event
	// after checks the result.
	after func(*sandbox)
	// replaced has pairs: a text on a page and its replacement in the sandbox.
	replaced []string
}

type event struct {
	command string
	happens func(*sandbox)
}

// TestDocumentedOutputIsCurrent follows the documentation as its readers do. It runs every command as written, in page order, and compares
// the output with the page. `make test` omits the commands that run kubectl, Helm or another program that it lacks, with their events.
func TestDocumentedOutputIsCurrent(t *testing.T) {
	if testing.Short() {
		t.Skip("starts control planes")
	}
	t.Parallel()
	for _, w := range walks() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			w.walk(t)
		})
	}
}

// TestEveryCommandIsWalked checks that the comment before every block that no walk runs gives the reason. It lists the reasons.
func TestEveryCommandIsWalked(t *testing.T) {
	t.Parallel()
	walked := map[string]bool{}
	for _, w := range walks() {
		for _, page := range w.pages {
			assert.False(t, walked[page], "%s is walked twice", page)
			walked[page] = true
		}
	}
	total, run, outer := 0, 0, 0
	marked := map[string]int{}
	for _, page := range commandPages(t) {
		for _, b := range readBlocks(t, page) {
			switch {
			case b.notRun != "":
				marked[b.notRun] += len(b.commands)
				total += len(b.commands)
			case walked[page]:
				run += len(b.commands)
				for _, c := range b.commands {
					if c.needsOuter() {
						outer++
					}
				}
			default:
				assert.Empty(t, b.commands, "%s:%d: no walk runs this block, and no comment before it gives the reason", page, b.line)
			}
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(marked)) {
		t.Logf("%2d not run: %s", marked[reason], reason)
	}
	t.Logf("%d commands are run, %d of them only in make outer; %d are not", run, outer, total)
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
				omitted := c.needsOuter() && !ring.Outer()
				at := slices.IndexFunc(events, func(e event) bool { return strings.HasPrefix(s.resolve(c.text)+"\n", e.command) })
				if at >= 0 {
					if !omitted {
						events[at].happens(s)
					}
					events = slices.Delete(events, at, at+1)
				}
				if omitted {
					s.omitted++
					continue
				}
				if b.notCompared != "" {
					c.output = ending(c)
				}
				s.run(page, c)
			}
		}
	}
	for _, e := range events {
		assert.Fail(t, "no page has this command", "%q", e.command)
	}
	if w.after != nil {
		w.after(s)
	}
	t.Logf("%d commands run, %d left to make outer", s.ran, s.omitted)
}

// ending returns the output to expect even if the page shows other output than the walk: the last line of a watch.
func ending(c typed) []string {
	if strings.HasSuffix(c.text, " -w") && len(c.output) > 0 {
		return c.output[len(c.output)-1:]
	}
	return nil
}

// script returns an event that runs commands.
func script(format string, args ...any) func(*sandbox) {
	return func(s *sandbox) { s.shell(fmt.Sprintf(format, args...)) }
}

// chartAndKustomization creates what a page takes for a platform team's own.
const chartAndKustomization = `mkdir -p charts/web/templates dns/overlays/production
echo '{apiVersion: v2, name: web, version: 1.0.0}' >charts/web/Chart.yaml
echo 'replicas: 2' >production.yaml
echo '{apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: default}, data: {replicas: "{{ .Values.replicas }}"}}' >charts/web/templates/web.yaml
echo 'resources: [dns.yaml]' >dns/overlays/production/kustomization.yaml
echo '{apiVersion: v1, kind: ConfigMap, metadata: {name: dns, namespace: default}}' >dns/overlays/production/dns.yaml`

// installed prepares a cluster with 1.0.0 of the example platform.
func installed(s *sandbox) {
	s.releases()
	s.cluster()
	s.shell(s.resolve("cvo install --wait=none --release-image registry.example.com/platform/release@sha256:… --trust trust.yaml"))
	s.pods("1.0.0")
	s.shell("cvo upgrade wait --timeout=100s")
}

// choosing prepares an installed cluster with a Prometheus, and an update service that offers 1.1.0. Like the events of its walk, it runs kubectl.
func choosing(s *sandbox) {
	ring.NeedOuter(s)
	installed(s)
	offered(s)
	s.shell("kubectl apply -f - <<EOF\n" + fixture.RouteDefinition + "---\n" + fixture.PrometheusNamespace + "EOF\n" +
		"kubectl wait --for condition=Established crd routes.route.openshift.io\n" +
		"kubectl create -f - <<EOF\n" + fixture.PrometheusRoute("prometheus.example.com") + "EOF")
	s.shell(`kubectl create serviceaccount vera && kubectl create clusterrolebinding vera --clusterrole cluster-admin --serviceaccount default:vera
kubectl config set-credentials vera --token="$(kubectl create token vera)" && kubectl config set-context --current --user vera`)
}

// backAtFirst succeeds when the cluster is at 1.0.0, requests nothing else and knows updates from there.
const backAtFirst = `kubectl get clusterversion version -o json | jq -e '.metadata.generation == .status.observedGeneration and
(.status.history[0] | .version == "1.0.0" and .state == "Completed") and .status.desired.version == "1.0.0" and (.status.availableUpdates | length > 0)'`

// offered makes an update service offer 1.1.0 to the cluster.
func offered(s *sandbox) {
	s.shell(`kubectl patch clusterversion version --type=merge -p '{"spec":{"upstream":"https://updates.example.com/graph","channel":"stable"}}'`)
	s.eventually("kubectl get clusterversion version -o json | jq -e '.status.availableUpdates[0]'")
}

// condition returns an event that waits until a script succeeds.
func condition(script string) func(*sandbox) {
	return func(s *sandbox) { s.eventually(script) }
}

func walks() []walk {
	return []walk{
		{
			name:  "make",
			pages: []string{"docs/user/build.md"},
			prepare: func(s *sandbox) {
				// The images in the example exist in no registry. Replace them by existing ones.
				s.shell("cp -r examples/platform/1.1.0 own")
				for name, digest := range s.pushComponents() {
					s.shell("sed -i 's,/platform/" + name + "@sha256:[0-9a-f]*,/platform/" + name + "@" + digest + ",' own/image-references")
				}
			},
			before:   []event{{"cvo release new --from-helm", script(chartAndKustomization)}},
			replaced: []string{"examples/platform/1.1.0", "own", "platform/dns:hotfix", "platform/example-backup:1"},
		},
		{
			name:    "readme",
			pages:   []string{"docs/user/concepts.md", "README.md"},
			prepare: installed,
		},
		{
			name:    "mirror",
			pages:   []string{"docs/user/mirror.md"},
			prepare: published,
			before: []event{
				{"cvo install", func(s *sandbox) { s.deployed("1.0.0", "mirror.example.com/platform") }},
			},
		},
		{
			name:    "registries",
			pages:   []string{"docs/user/registries.md"},
			prepare: published,
			before: []event{
				{"POD_IP=", func(s *sandbox) {
					s.shell(s.resolve("cvo install --no-operator --release-image registry.example.com/platform/release@sha256:… --trust trust.yaml"))
					s.replaced = append([]string{"POD_IP=… cvo start …", "env POD_IP=127.0.0.1 cvo " + strings.Join(s.start("1.0.0", nil), " ") + " --trust trust.yaml"}, s.replaced...)
				}},
				{"kubectl -n openshift-cluster-version get jobs,pods", func(s *sandbox) {
					s.shell("cvo upgrade wait --timeout=100s")
					s.shell(s.resolve("cvo upgrade --to-image registry.example.com/platform/release@sha256:… --allow-explicit-upgrade"))
					s.eventually("kubectl -n openshift-cluster-version get job -l k8s-app=retrieve-openshift-release | grep version-")
				}},
			},
		},
		{
			name: "look",
			pages: []string{
				"docs/user/check.md", "docs/user/permissions.md", "docs/user/metrics.md", "docs/user/trust.md",
				"docs/user/signatures.md", "examples/platform/README.md",
			},
			before: []event{
				{"cvo release keygen", script("rm -r keys")},
				{"bin/cvo release keygen", script("rm -r keys")},
				{"bin/cvo release keygen", script("rm -r keys")},
			},
			prepare: func(s *sandbox) {
				installed(s)
				for _, folder := range []string{"release:1.0.0", "release-1.0.0:1.0.0", "release-1.1.0:1.1.0"} {
					name, version, _ := strings.Cut(folder, ":")
					s.shell("cvo release extract --quiet registry.example.com/platform/release:" + version + " --layout image --to " + name)
				}
				s.namespace("ops")
			},
			replaced: []string{
				"registry.example/platform/release:2.0.0", "registry.example.com/platform/release:1.1.0",
				"mirror.example/platform/release:2.0.0", "registry.example.com/platform/release:1.1.0",
				"platform/release:2.0.0", "platform/release:1.1.0", "registry.example/", "registry.example.com/",
				"localhost:5000/", "registry.example.com/", "bin/example/1.0.0.mapping", "images.mapping",
			},
		},
		{
			name:  "install",
			pages: []string{"docs/user/install.md"},
			prepare: func(s *sandbox) {
				s.releases()
				s.cluster()
				s.replaced = append([]string{"make chart ", s.make("chart CHART_DIR=$PWD/bin/chart ")}, s.replaced...)
			},
			before: []event{
				{"cvo install --release-image", func(s *sandbox) { s.deployed("1.0.0") }},
				{"cvo install --release-image registry.example.com/platform/release:1.0.0 --trust trust.yaml --render", func(s *sandbox) { s.cluster() }},
				{"helm install", func(s *sandbox) {
					s.shell("kubectl -n openshift-cluster-version get deployment cluster-version-operator")
					s.cluster()
				}},
				{"cvo install --no-operator", func(s *sandbox) {
					if ring.Outer() { // Helm has installed the operator
						s.pods("1.0.0")
						s.shell("cvo upgrade wait --timeout=100s | grep 'complete\\|is at'")
					}
					s.cluster()
				}},
				{"cvo uninstall --dry-run", func(s *sandbox) {
					s.shell("cvo upgrade wait --timeout=100s")
					objects.CollectGarbage(s, s.client())
				}},
			},
			replaced: []string{"cvo uninstall --dry-run", "cvo uninstall --dry-run", "cvo uninstall", "cvo uninstall --yes"},
			after: func(s *sandbox) {
				c := s.client()
				assert.False(s, objects.Exists(s, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: api.OperatorNamespace}}))
				assert.True(s, objects.Exists(s, c, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "example-dns", Name: "example-dns-operator"}}))
				err := c.Get(s.Context(), client.ObjectKey{Name: "version"}, &configv1.ClusterVersion{})
				assert.True(s, apimeta.IsNoMatchError(err), "the kind is gone: %v", err)
			},
		},
		{
			name: "update",
			pages: []string{
				"docs/user/status.md", "docs/user/troubleshoot.md", "docs/user/update.md", "docs/user/whose-fields.md",
			},
			prepare: installed,
		},
		{
			name:    "choose",
			pages:   []string{"docs/user/choose-update.md", "docs/user/preconditions.md"},
			prepare: choosing,
			before: []event{
				{"cvo upgrade recommend --version", func(s *sandbox) {
					s.alerts.Alert(firing("KubeNodeNotReady", "warning"), firing("PodDisruptionBudgetLimit", "critical"))
				}},
				{"cvo upgrade --to 1.1.0 --preflight", condition(backAtFirst)},
				{"cvo upgrade\n", condition("kubectl get releaserollout version -o json | jq -e '.status.preflight.state == \"Passed\"'")},
				{"kubectl explain", func(s *sandbox) {
					// The update that the next page requests waits for its preconditions.
					s.eventually(backAtFirst)
					s.shell("cvo upgrade pause")
				}},
				{"kubectl get clusterversion version -o jsonpath='{.status.conditions[?(@.type==\"ReleaseAccepted", gated},
				{"kubectl get clusterversion version -o jsonpath='{.status.conditions[?(@.type==\"Upgradeable", notUpgradeable},
			},
			replaced: []string{
				"cvo upgrade diff registry.example.com/platform/release:1.1.0", "cvo upgrade diff registry.example.com/platform/release:1.0.0",
				"1.2.0", "1.1.0", "ack-1.1-", "ack-1.0-",
			},
			after: acknowledged,
		},
		{
			name:    "openshift",
			pages:   []string{"docs/user/openshift.md"},
			prepare: original,
			before: []event{
				{"cvo release keygen", script("rm -r keys")},
				{"cp -P", script("mkdir -p .local/bin")},
				{"cvo upgrade wait", func(s *sandbox) { s.pods("1.0.0", "registry.example.com/platform/moved") }},
				{"kubectl -n openshift-cluster-version delete deployment", script("true")},
				{"kubectl -n openshift-cluster-version delete deployment", func(s *sandbox) { movedOver(s); s.end(s.operator) }},
			},
			replaced: []string{"--to-image-base", "--mapping-file images.mapping --from-dir examples/platform/1.0.0 --to-image-base"},
			after: func(s *sandbox) {
				original := s.shell("kubectl -n openshift-cluster-version get deployment cluster-version-operator -o json | jq -r '.spec.template.spec.containers[].image'")
				assert.Equal(s, "registry.example.com/original:v1\n", original)
			},
		},
	}
}

// firing returns a firing alert.
func firing(name, severity string) promv1.Alert {
	return promv1.Alert{State: promv1.AlertStateFiring, Labels: model.LabelSet{"alertname": model.LabelValue(name), "severity": model.LabelValue(severity), "namespace": "example-dns"}}
}

// gated requires an acknowledgement before the requested update. By then the operator may already report that, and may no longer recommend
// the update.
func gated(s *sandbox) {
	s.shell(`kubectl -n openshift-config create configmap admin-acks
kubectl -n openshift-config-managed create configmap admin-gates --from-literal=ack-1.0-storage-api=` +
		`'Version 1.2 removes the old storage API. See https://example.com/storage-1.2 and acknowledge.'
cvo upgrade --to 1.1.0 --allow-upgrade-with-warnings --allow-not-recommended`)
	s.eventually(`kubectl get clusterversion version -o json | jq -e '.status.conditions[] | select(.type == "ReleaseAccepted" and .reason == "PreconditionChecks")'`)
}

// notUpgradeable makes an operator block the update too.
func notUpgradeable(s *sandbox) {
	s.end(s.actors) // the actors would overwrite the condition
	s.shell(upgradeable("False", "One or more machine config pools are degraded"))
	s.eventually(`kubectl get clusterversion version -o json | jq -e '.status.conditions[] | select(.type == "Upgradeable") | .message | contains("multiple")'`)
}

// acknowledged makes that operator permit the update. The cluster then accepts it by itself.
func acknowledged(s *sandbox) {
	s.shell(upgradeable("True", ""))
	s.act()
	s.eventually(`kubectl get clusterversion version -o json | jq -e '.status.conditions[] | select(.type == "ReleaseAccepted" and .reason == "PayloadLoaded")'`)
}

func upgradeable(status, message string) string {
	return fmt.Sprintf(`kubectl get clusteroperator machine-config -o json | jq '.status.conditions |= map(select(.type != "Upgradeable")) + `+
		`[{type: "Upgradeable", status: %q, reason: "DegradedPool", message: %q, lastTransitionTime: "2026-01-01T00:00:00Z"}]' | `+
		`kubectl replace --subresource=status -f -`, status, message)
}

// published prepares a cluster with releases that their publisher has signed with OpenPGP.
func published(s *sandbox) {
	s.releases()
	s.shell("cvo release keygen --type openpgp --name vendor --out vendor && sed 's,file:.*,https://signatures.example.com,' vendor/trust.yaml >trust.yaml")
	for _, version := range []string{"1.0.0", "1.1.0"} {
		s.shell("cvo release sign registry.example.com/platform/release:" + version + " --key vendor/private.asc --store signatures")
	}
	s.replaced = append([]string{
		"sha256:080c…", s.digests["1.0.0"], "sha256-080cb9b06e25df48", strings.Replace(s.digests["1.0.0"], ":", "-", 1)[:len("sha256-080cb9b06e25df48")],
	}, s.replaced...)
	s.cluster()
	s.namespace("openshift-config-managed")
	for _, kind := range []string{"imagedigestmirrorsets", "imagetagmirrorsets"} {
		s.control.Serve(s, "0000_10_config-operator_01_"+kind+".crd.yaml")
	}
}

// original prepares a cluster as OpenShift's operator leaves it, with the objects of a release written by updates. Like the page, it runs kubectl.
func original(s *sandbox) {
	ring.NeedOuter(s)
	s.releases()
	s.cluster()
	s.shell("cvo release extract --quiet registry.example.com/platform/release:1.0.0 --to written")
	s.shell("cvo install --no-operator --release-image registry.example.com/platform/release:1.0.0 --trust trust.yaml")
	// In file name order, namespaces and definitions come first, except definitions in a later runlevel.
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

// owners lists the field managers of the release's objects and their operations.
const owners = `kubectl get deployments,services,configmaps,serviceaccounts -A --show-managed-fields -o json | jq -r '.items[] |
select(.metadata.namespace | startswith("example-")) | .metadata.managedFields[] | select(.subresource == null) | .manager + " " + .operation' | sort | uniq -c`

// movedOver checks that the original's objects are now applied and that the history continues.
func movedOver(s *sandbox) {
	owned := s.shell(owners)
	// An entry of the original stays as long as the release has all its fields. Later it is removed with the first dropped field.
	assert.Contains(s, owned, "cluster-version-operator Apply")
	history := s.shell("kubectl get clusterversion version -o json | jq -r '.status.history[] | .state + \" \" + .image'")
	lines := strings.Split(strings.TrimSpace(history), "\n")
	require.Len(s, lines, 2)
	assert.Contains(s, lines[0], "Completed registry.example.com/platform/moved@")
	assert.Contains(s, lines[1], "Completed registry.example.com/platform/release@")
}
