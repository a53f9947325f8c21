package apply

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

// Injection is what a cluster puts into manifests that ask for it: its proxy, its TLS profile, its internal API server
// address. It is a value: of the same manifest it makes the same object.
type Injection struct {
	// Proxy goes into the environment of the containers that an annotation names. Zero: nothing is injected.
	Proxy Proxy
	// TLS goes into configuration files. Zero: the files' own settings are cleared.
	TLS TLS
	// APIServer goes into the environment of the operator's own container. Without a host nothing is injected.
	APIServer APIServer
}

// Proxy is what containers find in HTTP_PROXY, HTTPS_PROXY and NO_PROXY. Once one of them is set all three are
// injected, so that an empty one hides what an image may set.
type Proxy struct{ HTTP, HTTPS, No string }

// TLS is the least version, such as VersionTLS12, and the cipher suites by their IANA names.
type TLS struct {
	MinVersion   string
	CipherSuites []string
}

// APIServer is where the operator reaches the API server without the cluster's own network. The port defaults to 443.
type APIServer struct{ Host, Port string }

// WithInjection returns a copy of the Applier that injects i.
func (a *Applier) WithInjection(i Injection) *Applier {
	out := *a
	out.injection = i
	return &out
}

// Injected reports whether a manifest asks for anything that an Injection changes.
func Injected(m *manifest.Manifest) bool {
	if isOperatorDeployment(m.Object) {
		return true
	}
	annotations := m.Object.GetAnnotations()
	if podTemplatePath(m.Object) != nil {
		return annotations[api.InjectProxyAnnotation] != ""
	}
	return asksForTLS(m.Object)
}

// into returns the object with everything injected that it asks for. The object itself stays as it is; what does not
// change is shared with it.
func (i Injection) into(object map[string]any) (map[string]any, error) {
	u := &unstructured.Unstructured{Object: object}
	switch {
	case asksForTLS(u):
		return i.TLS.into(object), nil
	case podTemplatePath(u) != nil:
		return i.intoPodTemplate(u)
	}
	return object, nil
}

// The container that runs the operator, and its Deployment. Other operators find the API server by the Service.
const (
	operatorDeployment = "cluster-version-operator"
	operatorContainer  = "cluster-version-operator"
)

func isOperatorDeployment(u *unstructured.Unstructured) bool {
	gvk := u.GroupVersionKind()
	return gvk.Group == "apps" && gvk.Kind == "Deployment" && u.GetName() == operatorDeployment &&
		u.GetNamespace() == api.OperatorNamespace
}

// podTemplatePath returns where an object holds the spec of its pods, nil if it has none.
func podTemplatePath(u *unstructured.Unstructured) []string {
	gvk := u.GroupVersionKind()
	switch gvk.Group + "/" + gvk.Kind {
	case "apps/Deployment", "apps/DaemonSet", "apps/StatefulSet", "apps/ReplicaSet", "batch/Job":
		return []string{"spec", "template", "spec"}
	case "batch/CronJob":
		return []string{"spec", "jobTemplate", "spec", "template", "spec"}
	}
	return nil
}

func (i Injection) intoPodTemplate(u *unstructured.Unstructured) (map[string]any, error) {
	inject := map[string][]envVar{}
	if names := u.GetAnnotations()[api.InjectProxyAnnotation]; names != "" && i.Proxy != (Proxy{}) {
		for name := range strings.SplitSeq(names, ",") {
			inject[strings.TrimSpace(name)] = []envVar{
				{"HTTP_PROXY", i.Proxy.HTTP}, {"HTTPS_PROXY", i.Proxy.HTTPS}, {"NO_PROXY", i.Proxy.No},
			}
		}
	}
	own := isOperatorDeployment(u) && i.APIServer.Host != ""
	if !own && len(inject) == 0 {
		return u.Object, nil
	}
	path := podTemplatePath(u)
	known := map[string]bool{}
	object := u.Object
	for _, list := range []string{"containers", "initContainers"} {
		object = changed(object, append(slices.Clone(path), list), func(value any) any {
			containers, _ := value.([]any)
			containers = slices.Clone(containers)
			for n, item := range containers {
				container, _ := item.(map[string]any)
				name, _ := container["name"].(string)
				known[name] = true
				variables := inject[name]
				if own && list == "containers" && name == operatorContainer {
					variables = append(slices.Clone(variables),
						envVar{"KUBERNETES_SERVICE_HOST", i.APIServer.Host}, envVar{"KUBERNETES_SERVICE_PORT", cmp.Or(i.APIServer.Port, "443")})
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

// withEnv returns a copy of the container with the variables at the end of its environment. What is injected wins over
// what the manifest says of the same name: the list is keyed by name, so the server takes no name twice, and the
// manifest asks for the injection.
func withEnv(container map[string]any, variables []envVar) map[string]any {
	old, _ := container["env"].([]any)
	env := make([]any, 0, len(old)+len(variables))
	for _, item := range old {
		entry, _ := item.(map[string]any)
		if !slices.ContainsFunc(variables, func(v envVar) bool { return v.name == entry["name"] }) {
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

// changed returns a copy of the object in which change has replaced the value at path. The maps on the way are copied;
// an object without that value is returned as it is.
func changed(object map[string]any, path []string, change func(any) any) map[string]any {
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
	object[path[0]] = changed(inner, path[1:], change)
	return object
}
