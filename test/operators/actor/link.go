package actor

import (
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// workload describes a Deployment, DaemonSet or StatefulSet and the release to which it belongs.
type workload struct {
	kind, namespace, name string
	uid                   types.UID
	generation            int64
	// version is RELEASE_VERSION or OPERATOR_IMAGE_VERSION, empty if no container has either.
	version string
	// operands are the other versions in the environment, see readWorkload.
	operands map[string]string
}

// Environment variables with which release manifests set the versions that an operator reports. All OpenShift operators with a
// ClusterOperator have one of the first two. Those that use library-go also have the operand's.
const (
	releaseVersionEnv  = "RELEASE_VERSION"
	operatorVersionEnv = "OPERATOR_IMAGE_VERSION"
	operandVersionEnv  = "OPERAND_IMAGE_VERSION"
	operandPrefix      = "OPERAND_"
	operandSuffix      = "_IMAGE_VERSION"
)

// ownName stands for the name of the ClusterOperator in a workload's operands.
const ownName = ""

// readWorkload reads the environment of all containers. The version names are those of library-go and the machine-config operator:
// "raw-internal" is the operator's own image version, the ClusterOperator's name is its operand's version, and "operator-image" is the
// image from which it runs. OPERAND_X_Y_IMAGE_VERSION is the version of operand x-y.
func readWorkload(kind string, meta metav1.ObjectMeta, pod corev1.PodSpec) workload {
	w := workload{
		kind: kind, namespace: meta.Namespace, name: meta.Name, uid: meta.UID, generation: meta.Generation,
		operands: map[string]string{},
	}
	fallback := ""
	for _, c := range slices.Concat(pod.Containers, pod.InitContainers) {
		for _, e := range c.Env {
			switch {
			case e.Value == "":
			case e.Name == releaseVersionEnv:
				w.version = e.Value
			case e.Name == operatorVersionEnv:
				fallback = e.Value
				w.operands["raw-internal"] = e.Value
			case e.Name == operandVersionEnv:
				w.operands[ownName] = e.Value
			case strings.HasPrefix(e.Name, operandPrefix) && strings.HasSuffix(e.Name, operandSuffix):
				name := strings.TrimSuffix(strings.TrimPrefix(e.Name, operandPrefix), operandSuffix)
				w.operands[strings.ToLower(strings.ReplaceAll(name, "_", "-"))] = e.Value
			}
		}
	}
	if w.version == "" {
		w.version = fallback
	}
	if len(pod.Containers) > 0 {
		w.operands["operator-image"] = pod.Containers[0].Image
	}
	return w
}

// base returns a name without the words that only mark an operator of the platform: cluster-dns-operator, openshift-dns and dns all become
// dns.
func base(name string) string {
	name = strings.TrimPrefix(name, "openshift-")
	name = strings.TrimPrefix(name, "cluster-")
	return strings.TrimSuffix(name, "-operator")
}

// related reports whether a namespace belongs to a ClusterOperator: its relatedObjects name the namespace or an object in it, or the
// namespace has the ClusterOperator's name.
func related(operator *configv1.ClusterOperator, namespace string) bool {
	for _, o := range operator.Status.RelatedObjects {
		if o.Namespace == namespace || (o.Group == "" && o.Resource == "namespaces" && o.Name == namespace) {
			return true
		}
	}
	return base(namespace) == base(operator.Name)
}

// link finds the workloads in which a ClusterOperator's operator runs, in this order:
//
//  1. workloads that its relatedObjects name;
//  2. workloads with its name in a related namespace;
//  3. all workloads of related namespaces without the name of another ClusterOperator related to them. (OpenShift's
//     operator-lifecycle-manager needs this: three ClusterOperators share a namespace with three Deployments with other names.)
//
// Only workloads with a version count.
func link(operator *configv1.ClusterOperator, all []workload, operators []*configv1.ClusterOperator) []workload {
	var named, same, rest []workload
	for _, w := range all {
		switch {
		case namedBy(operator, w):
			named = append(named, w)
		case !related(operator, w.namespace):
		case base(w.name) == base(operator.Name):
			same = append(same, w)
		case !slices.ContainsFunc(operators, func(other *configv1.ClusterOperator) bool {
			return other.Name != operator.Name && base(w.name) == base(other.Name) && related(other, w.namespace)
		}):
			rest = append(rest, w)
		}
	}
	for _, found := range [][]workload{named, same, rest} {
		if len(found) > 0 {
			return found
		}
	}
	return nil
}

func namedBy(operator *configv1.ClusterOperator, w workload) bool {
	return slices.ContainsFunc(operator.Status.RelatedObjects, func(o configv1.ObjectReference) bool {
		return o.Group == "apps" && o.Resource == strings.ToLower(w.kind)+"s" && o.Namespace == w.namespace && o.Name == w.name
	})
}

// versions returns the versions that a ClusterOperator reports for these workloads. It returns none unless all have the same version.
func versions(operator string, linked []workload) []configv1.OperandVersion {
	if len(linked) == 0 {
		return nil
	}
	operands := map[string]string{}
	for _, w := range linked {
		if w.version != linked[0].version {
			return nil
		}
		for name, version := range w.operands {
			if name == ownName {
				name = operator
			}
			operands[name] = version
		}
	}
	list := []configv1.OperandVersion{{Name: "operator", Version: linked[0].version}}
	delete(operands, "operator")
	for name, version := range operands {
		list = append(list, configv1.OperandVersion{Name: name, Version: version})
	}
	slices.SortFunc(list[1:], func(a, b configv1.OperandVersion) int { return strings.Compare(a.Name, b.Name) })
	return list
}
