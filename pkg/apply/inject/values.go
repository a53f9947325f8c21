// Package inject adds the cluster's values to manifests that request them: its proxy, its TLS profile and its internal API server address.
// It also omits CA bundles that other controllers inject. It takes an object and returns a copy. The same manifest and values always result
// in the same object. Callers read the cluster's configuration and pass it.
package inject

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Values are the values of a cluster that manifests may request: its proxy, its TLS profile and its internal API server address.
type Values struct {
	// Proxy is added to the environment of the containers that an annotation names. The zero value injects nothing.
	Proxy Proxy
	// TLS is written to configuration files. The zero value removes the files' own settings.
	TLS TLS
	// APIServer is added to the environment of the operator's own container. Without a host, nothing is injected.
	APIServer APIServer
}

// Proxy contains the values of HTTP_PROXY, HTTPS_PROXY and NO_PROXY for containers. If any is set, all three are injected, so that an empty
// value overrides the image's.
type Proxy struct{ HTTP, HTTPS, No string }

// TLS consists of the minimum version, such as VersionTLS12, and the IANA names of the cipher suites.
type TLS struct {
	MinVersion   string
	CipherSuites []string
}

// APIServer is the address of the API server outside the cluster's own network. The default port is 443.
type APIServer struct{ Host, Port string }

// Requested reports whether a manifest requests any of the Values.
func Requested(m *manifest.Manifest) bool {
	if manifest.IsOperatorDeployment(m.Object) {
		return true
	}
	annotations := m.Object.GetAnnotations()
	if manifest.PodSpecPath(m.Object) != nil {
		return annotations[api.InjectProxyAnnotation] != ""
	}
	return asksForTLS(m.Object)
}

// Into returns the object with all requested injections. It does not modify the object. The copy shares unchanged parts with it.
func (v Values) Into(object map[string]any) (map[string]any, error) {
	u := &unstructured.Unstructured{Object: object}
	switch {
	case asksForTLS(u):
		return v.TLS.into(object), nil
	case manifest.PodSpecPath(u) != nil:
		return v.intoPodTemplate(u)
	}
	return object, nil
}

// operatorContainer is the operator's container in its Deployment, which has the same name. Other operators find the API server through the
// Service.
const operatorContainer = api.OperatorDeployment

func (v Values) intoPodTemplate(u *unstructured.Unstructured) (map[string]any, error) {
	inject := map[string][]envVar{}
	if names := u.GetAnnotations()[api.InjectProxyAnnotation]; names != "" && v.Proxy != (Proxy{}) {
		for name := range strings.SplitSeq(names, ",") {
			inject[strings.TrimSpace(name)] = []envVar{
				{"HTTP_PROXY", v.Proxy.HTTP}, {"HTTPS_PROXY", v.Proxy.HTTPS}, {"NO_PROXY", v.Proxy.No},
			}
		}
	}
	own := manifest.IsOperatorDeployment(u) && v.APIServer.Host != ""
	if !own && len(inject) == 0 {
		return u.Object, nil
	}
	path := manifest.PodSpecPath(u)
	known := map[string]bool{}
	object := u.Object
	for _, list := range []string{"containers", "initContainers"} {
		object = Replace(object, append(slices.Clone(path), list), func(value any) any {
			containers, _ := value.([]any)
			containers = slices.Clone(containers)
			for n, item := range containers {
				container, _ := item.(map[string]any)
				name, _ := container["name"].(string)
				known[name] = true
				variables := inject[name]
				if own && list == "containers" && name == operatorContainer {
					variables = append(slices.Clone(variables),
						envVar{"KUBERNETES_SERVICE_HOST", v.APIServer.Host}, envVar{"KUBERNETES_SERVICE_PORT", cmp.Or(v.APIServer.Port, "443")})
				}
				if len(variables) > 0 {
					containers[n] = withEnv(container, variables)
				}
			}
			return containers
		})
	}
	for _, name := range slices.Sorted(maps.Keys(inject)) {
		if !known[name] {
			return nil, fmt.Errorf("requested injection for non-existent container: %q", name)
		}
	}
	return object, nil
}

type envVar struct{ name, value string }

// withEnv returns a copy of the container with the variables appended to its environment. Injected variables replace the manifest's
// variables of the same name: the list is keyed by name, so the server rejects duplicates, and the manifest requests the injection.
func withEnv(container map[string]any, variables []envVar) map[string]any {
	old, _ := container["env"].([]any)
	env := make([]any, 0, len(old)+len(variables))
	for _, item := range old {
		entry, _ := item.(map[string]any)
		if !slices.ContainsFunc(variables, func(e envVar) bool { return e.name == entry["name"] }) {
			env = append(env, item)
		}
	}
	for _, v := range variables {
		env = append(env, map[string]any{"name": v.name, "value": v.value})
	}
	container = maps.Clone(container)
	container["env"] = env
	return container
}

// Replace returns a copy of the object in which change has replaced the value at path. It copies the maps along the path. An object without
// the value is returned unchanged.
func Replace(object map[string]any, path []string, change func(any) any) map[string]any {
	value, ok := object[path[0]]
	if !ok {
		return object
	}
	if len(path) == 1 {
		object = maps.Clone(object)
		object[path[0]] = change(value)
		return object
	}
	inner, ok := value.(map[string]any)
	if !ok {
		return object
	}
	object = maps.Clone(object)
	object[path[0]] = Replace(inner, path[1:], change)
	return object
}
