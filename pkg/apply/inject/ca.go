package inject

import (
	"bytes"
	"encoding/base64"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
)

// WithoutCA returns the object without CA bundles that another controller injects, as requested by annotations or labels of the manifest or
// of the live object. Three controllers mark the object itself: OpenShift's service CA operator (webhooks, CRDs, APIServices, ConfigMaps),
// its network operator (ConfigMaps, by a label), and cert-manager. A blank bundle, which is a placeholder, is always omitted, because the
// server would reject replacing a real bundle with it. WithoutCA does not modify the object.
func WithoutCA(object map[string]any, annotations, labels map[string]string) map[string]any {
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
		return Replace(object, []string{"webhooks"}, func(value any) any {
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

// isBlank reports whether a base64 bundle is blank.
func isBlank(bundle any) bool {
	text, ok := bundle.(string)
	if !ok {
		return false
	}
	data, err := base64.StdEncoding.DecodeString(text)
	return err == nil && len(bytes.TrimSpace(data)) == 0
}

// withoutIf returns a copy of the object without the field at path. If the field is missing or the condition is false for its value, it
// returns the object itself.
func withoutIf(holds func(any) bool, object map[string]any, path ...string) map[string]any {
	last := len(path) - 1
	if value, found, _ := unstructured.NestedFieldNoCopy(object, path...); !found || !holds(value) {
		return object
	}
	return Replace(object, path[:last], func(value any) any {
		inner, ok := value.(map[string]any)
		if !ok {
			return value
		}
		inner = maps.Clone(inner)
		delete(inner, path[last])
		return inner
	})
}
