package apply_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// inNamespace fills in the namespace of a test, and the name that objects of its tables share.
func inNamespace(ns, text string) string {
	return strings.NewReplacer("ns-odd", "odd-"+ns, "NS", ns).Replace(text)
}

// assertQuiet applies a manifest that was applied before and asserts that this writes nothing. Controllers of the API
// server itself, which fill in statuses, may write in between; their writes end.
func assertQuiet(t *testing.T, a *apply.Applier, m *manifest.Manifest) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); ; {
		before := live(t, m)
		change := must(t, a, m)
		if change.ResourceVersion == before.GetResourceVersion() {
			return
		}
		if time.Now().After(end) {
			assert.Fail(t, "applying again writes again", cmp.Diff(before, live(t, m)))
			return
		}
	}
}

// indent puts a block of YAML that many levels deeper.
func indent(levels int, text string) string {
	pad := strings.Repeat("  ", levels)
	return pad + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+pad) + "\n"
}

func configMapText(metadata, rest string) string {
	if metadata != "" {
		metadata = ", " + metadata
	}
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NS, namespace: NS" + metadata + "}\n" + rest
}

func secretText(rest string) string {
	return "apiVersion: v1\nkind: Secret\nmetadata: {name: NS, namespace: NS}\n" + rest
}

func serviceText(spec string) string {
	return "apiVersion: v1\nkind: Service\nmetadata: {name: NS, namespace: NS}\nspec:\n" + indent(1, spec)
}

// deploymentText is one with these parts of its pod template, beside a container.
func deploymentText(metadata, spec string) string {
	if metadata == "" {
		metadata = "metadata: {labels: {app: a}}"
	}
	return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: NS, namespace: NS}\nspec:\n  selector: {matchLabels: {app: a}}\n  template:\n" +
		indent(2, metadata) + "    spec:\n      containers: [{name: c, image: example.com/c}]\n" + indent(3, spec)
}

// containerText is a Deployment with these fields of its one container.
func containerText(fields string) string {
	return "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: NS, namespace: NS}\nspec:\n  selector: {matchLabels: {app: a}}\n  template:\n" +
		"    metadata: {labels: {app: a}}\n    spec:\n      containers:\n      - name: c\n        image: example.com/c\n" + indent(4, fields)
}

// workloadText is one of a kind of apps/v1 with these fields of its spec.
func workloadText(kind, spec string) string {
	selector := "  selector: {matchLabels: {app: a}}\n"
	if strings.Contains(spec, "selector: {match") {
		selector = ""
	}
	return "apiVersion: apps/v1\nkind: " + kind + "\nmetadata: {name: NS, namespace: NS}\nspec:\n" + selector +
		"  template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: example.com/c}]}}\n" + indent(1, spec)
}

// crdText is a CRD of that group with these fields of its spec and this schema.
func crdText(group, spec, schema string) string {
	names, _, _ := strings.Cut(spec[strings.Index(spec, "plural: ")+len("plural: "):], "}")
	plural, _, _ := strings.Cut(names, ",")
	return "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: " + plural + "." + group + ".example.com}\nspec:\n" +
		"  group: " + group + ".example.com\n  scope: Cluster\n" + indent(1, spec) +
		"  versions:\n  - name: v1\n    served: true\n    storage: true\n    schema:\n      openAPIV3Schema:\n" + indent(4, schema)
}
