package apply

import (
	"maps"
	"slices"

	"github.com/cluster-version/cvo/pkg/api"
)

// withoutInjectedCA returns the object without the CA bundles that somebody else fills in, because annotations or
// labels ask for it: those of the manifest, or those that the object has in the cluster. The object itself stays as it
// is.
//
// Where the certificate authority comes from is told on the object by OpenShift's service CA operator (webhooks, CRDs,
// APIServices, ConfigMaps), its network operator (ConfigMaps, by a label) and cert-manager.
func withoutInjectedCA(object map[string]any, annotations, labels map[string]string) map[string]any {
	serviceCA := annotations[api.InjectCABundleAnnotation] == "true"
	injected := serviceCA || slices.ContainsFunc([]string{
		api.CertManagerInjectAnnotation, api.CertManagerInjectSecretAnnotation, api.CertManagerInjectAPIServerAnnotation,
	}, func(name string) bool { return annotations[name] != "" })
	kind, _ := object["kind"].(string)
	if kind == "ConfigMap" {
		if serviceCA {
			object = without(object, "data", "service-ca.crt")
		}
		if labels[api.InjectTrustedCABundleLabel] == "true" {
			object = without(object, "data", "ca-bundle.crt")
		}
		return object
	}
	if !injected {
		return object
	}
	switch kind {
	case "CustomResourceDefinition":
		return without(object, "spec", "conversion", "webhook", "clientConfig", "caBundle")
	case "APIService":
		return without(object, "spec", "caBundle")
	case "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
		return changed(object, []string{"webhooks"}, func(value any) any {
			webhooks, ok := value.([]any)
			if !ok {
				return value
			}
			webhooks = slices.Clone(webhooks)
			for i, item := range webhooks {
				if webhook, ok := item.(map[string]any); ok {
					webhooks[i] = without(webhook, "clientConfig", "caBundle")
				}
			}
			return webhooks
		})
	}
	return object
}

// without returns a copy of the object without the field at path.
func without(object map[string]any, path ...string) map[string]any {
	last := len(path) - 1
	remove := func(value any) any {
		inner, ok := value.(map[string]any)
		if !ok {
			return value
		}
		inner = maps.Clone(inner)
		delete(inner, path[last])
		return inner
	}
	return changed(object, path[:last], remove)
}
