package ownership

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Loosening is a field by which somebody may have loosened the security of a pod.
type Loosening struct {
	// Manager is who set it.
	Manager string
	// Path is where, such as `spec.template.spec.containers[name="x"].securityContext.privileged`.
	Path string
}

// Loosened returns the fields that other managers set, in whichever way but not through a subresource, and that can
// loosen the security of a pod: host namespaces, paths and ports, and what the security contexts of pods and containers
// say about privileges, users and confinement (the fields that the Pod Security Standards restrict). It looks wherever
// a pod spec may be: in a pod, in the template of a workload, in the job template of a CronJob. Fields that our own
// Apply entry has as well are left out, since what they say is what a release says.
//
// managedFields tells who set which field, not to which value: `privileged: false` is among them too. Whoever reports a
// loosening looks at the value first. The result is sorted by manager, then path, without repetitions; nil for almost
// every object. Entries that cannot be read are passed over.
func Loosened(entries []metav1.ManagedFieldsEntry) []Loosening {
	var found []Loosening
	var own *fieldpath.Set
	for i := range entries {
		e := &entries[i]
		if ours(e) || e.Subresource != "" || e.FieldsV1 == nil || !mayLoosen(e.FieldsV1.GetRawBytes()) {
			continue
		}
		set := parse(e)
		if set == nil {
			continue
		}
		if own == nil {
			own = ownSet(entries)
		}
		for _, place := range podSpecs {
			walk(place, set, own, nil, func(path string) { found = append(found, Loosening{e.Manager, path}) })
		}
	}
	slices.SortFunc(found, func(a, b Loosening) int {
		if c := strings.Compare(a.Manager, b.Manager); c != 0 {
			return c
		}
		return strings.Compare(a.Path, b.Path)
	})
	return slices.Compact(found)
}

// fields is a tree of field names; under each stands what to look at below it, nil if the field itself is meant.
type fields map[string]fields

// items stands, in the place of a field name, for the items of a list.
const items = ""

var (
	// confinement is what the security contexts of pods and of containers have in common.
	confinement = fields{
		"runAsUser":       nil,
		"runAsNonRoot":    nil,
		"seccompProfile":  nil,
		"appArmorProfile": nil,
		// A release may set one and somebody else another one.
		"seLinuxOptions": {"user": nil, "role": nil, "type": nil, "level": nil},
		"windowsOptions": {"hostProcess": nil},
	}
	container = fields{
		"securityContext": merged(confinement, fields{
			"privileged":               nil,
			"allowPrivilegeEscalation": nil,
			"capabilities":             {"add": nil},
			"procMount":                nil,
		}),
		"ports": {items: {"hostPort": nil}},
	}
	podSpec = fields{
		"hostPID":         nil,
		"hostIPC":         nil,
		"hostNetwork":     nil,
		"hostUsers":       nil,
		"securityContext": merged(confinement, fields{"sysctls": nil}),
		"containers":      {items: container},
		"initContainers":  {items: container},
		"volumes":         {items: {"hostPath": nil}},
	}
	// podSpecs is where pod specs are: in pods, in workloads, in CronJobs.
	podSpecs = []fields{
		{"spec": podSpec},
		{"spec": {"template": {"spec": podSpec}}},
		{"spec": {"jobTemplate": {"spec": {"template": {"spec": podSpec}}}}},
	}
)

func merged(a, b fields) fields {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// mayLoosen reports whether an entry names one of the fields that can loosen anything. It saves parsing nearly every
// entry there is.
func mayLoosen(raw []byte) bool {
	for {
		start := bytes.Index(raw, []byte(`"f:`))
		if start < 0 {
			return false
		}
		raw = raw[start+len(`"f:`):]
		end := bytes.IndexByte(raw, '"')
		if end < 0 {
			return false
		}
		switch string(raw[:end]) {
		case "hostPID", "hostIPC", "hostNetwork", "hostUsers", "hostPath", "hostPort",
			"privileged", "allowPrivilegeEscalation", "capabilities", "procMount", "runAsUser", "runAsNonRoot",
			"seccompProfile", "appArmorProfile", "seLinuxOptions", "windowsOptions", "sysctls":
			return true
		}
		raw = raw[end:]
	}
}

// parse reads the fields of an entry, nil if they cannot be read.
func parse(e *metav1.ManagedFieldsEntry) *fieldpath.Set {
	set := &fieldpath.Set{}
	if err := set.FromJSON(e.FieldsV1.GetRawReader()); err != nil {
		return nil
	}
	return set
}

// ownSet is what our last apply owns, empty if that cannot be read.
func ownSet(entries []metav1.ManagedFieldsEntry) *fieldpath.Set {
	for i := range entries {
		if e := &entries[i]; ours(e) && e.FieldsV1 != nil {
			if set := parse(e); set != nil {
				return set
			}
		}
	}
	return &fieldpath.Set{}
}

// walk calls found with the path of every field of a tree that set has and own has not.
func walk(tree fields, set, own *fieldpath.Set, path fieldpath.Path, found func(path string)) {
	for name, below := range tree {
		if name == items {
			for item := range set.Children.All() {
				if item.FieldName == nil {
					walkBelow(below, item, set, own, path, found)
				}
			}
			continue
		}
		field := fieldpath.FieldNameElement(name)
		if below != nil {
			walkBelow(below, field, set, own, path, found)
		} else if has(set, field) && !has(own, field) {
			found(strings.TrimPrefix(append(path, field).String(), "."))
		}
	}
}

func walkBelow(tree fields, e fieldpath.PathElement, set, own *fieldpath.Set, path fieldpath.Path, found func(string)) {
	child, ok := set.Children.Get(e)
	if !ok {
		return
	}
	ownChild, ok := own.Children.Get(e)
	if !ok {
		ownChild = &fieldpath.Set{}
	}
	walk(tree, child, ownChild, append(path, e), found)
}

// has reports whether a set has a field or anything below it.
func has(set *fieldpath.Set, e fieldpath.PathElement) bool {
	_, below := set.Children.Get(e)
	return below || set.Members.Has(e)
}
