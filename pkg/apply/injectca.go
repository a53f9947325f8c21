package apply

import (
	"bytes"
	"encoding/base64"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
)

// withoutInjectedCA returns the object without the CA bundles that somebody else fills in, because annotations or
// labels ask for it: those of the manifest, or those that the object has in the cluster. Where an authority comes from
// is told on the object itself by the users of OpenShift's service CA operator (webhooks, CRDs, APIServices,
// ConfigMaps), its network operator (ConfigMaps, by a label) and cert-manager. A blank bundle, which stands for one that
// somebody will fill in, is left out in any case: the server refuses it in the place of a real one. The object itself
// stays as it is.
func withoutInjectedCA(object map[string]any, annotations, labels map[string]string) map[string]any {
	serviceCA := annotations[api.InjectCABundleAnnotation] == "true"
	injected := serviceCA || slices.ContainsFunc([]string{
		api.CertManagerInjectAnnotation, api.CertManagerInjectSecretAnnotation, api.CertManagerInjectAPIServerAnnotation,
	}, func(name string) bool { return annotations[name] != "" })
	kind, _ := object["kind"].(string)
	if kind == "ConfigMap" {
		always := func(any) bool { return true }
		if serviceCA {
			object = withoutIf(always, object, "data", "service-ca.crt")
		}
		if labels[api.InjectTrustedCABundleLabel] == "true" {
			object = withoutIf(always, object, "data", "ca-bundle.crt")
		}
		return object
	}
	theirs := func(bundle any) bool { return injected || isBlank(bundle) }
	switch kind {
	case "CustomResourceDefinition":
		return withoutIf(theirs, object, "spec", "conversion", "webhook", "clientConfig", "caBundle")
	case "APIService":
		return withoutIf(theirs, object, "spec", "caBundle")
	case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
		return changed(object, []string{"webhooks"}, func(value any) any {
			webhooks, ok := value.([]any)
			if !ok {
				return value
			}
			webhooks = slices.Clone(webhooks)
			for i, item := range webhooks {
				if webhook, ok := item.(map[string]any); ok {
					webhooks[i] = withoutIf(theirs, webhook, "clientConfig", "caBundle")
				}
			}
			return webhooks
		})
	}
	return object
}

// isBlank reports whether a bundle in base64 holds nothing.
func isBlank(bundle any) bool {
	text, ok := bundle.(string)
	if !ok {
		return false
	}
	data, err := base64.StdEncoding.DecodeString(text)
	return err == nil && len(bytes.TrimSpace(data)) == 0
}

// withoutIf returns a copy of the object without the field at path, or the object itself where that is not there or the
// condition does not hold for it.
func withoutIf(holds func(any) bool, object map[string]any, path ...string) map[string]any {
	last := len(path) - 1
	if value, found, _ := unstructured.NestedFieldNoCopy(object, path...); !found || !holds(value) {
		return object
	}
	return changed(object, path[:last], func(value any) any {
		inner, ok := value.(map[string]any)
		if !ok {
			return value
		}
		inner = maps.Clone(inner)
		delete(inner, path[last])
		return inner
	})
}
