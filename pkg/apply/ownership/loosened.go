package ownership

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/cluster-version/cvo/internal/sorted"
)

// Loosening is a field with which another writer may have loosened a pod's security.
type Loosening struct {
	// Manager is the field manager that set the field.
	Manager string
	// Path is the path of the field, such as `spec.template.spec.containers[name="x"].securityContext.privileged`.
	Path string
}

// Loosened returns the fields that can loosen a pod's security and that other managers have set, except through a subresource. These are
// host namespaces, paths and ports, and the privileges, users and confinement in the security contexts of pods and containers (the fields
// that the Pod Security Standards restrict). It checks pod specs in pods, in the templates of workloads, and in the job templates of
// CronJobs. It omits fields that our own Apply entry also has, because their values come from a release.
//
// managedFields show the owner of a field but not its value: the result includes `privileged: false`. Callers must check the value before
// they report a loosening. The result is sorted by manager and path and has no duplicates. It is nil for almost every object. Unreadable
// entries are ignored.
func Loosened(entries []metav1.ManagedFieldsEntry) []Loosening {
	var found []Loosening
	var own *fieldpath.Set
	for i := range entries {
		e := &entries[i]
		if isOurs(e) || e.Subresource != "" || e.FieldsV1 == nil || !mayLoosen(e.FieldsV1.GetRawBytes()) {
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
	sorted.By(found, func(a, b Loosening) int {
		if c := strings.Compare(a.Manager, b.Manager); c != 0 {
			return c
		}
		return strings.Compare(a.Path, b.Path)
	})
	return slices.Compact(found)
}

// fields is a tree of field names. Each name maps to the fields to check below it, or to nil to check the field itself.
type fields map[string]fields

// items is the key for list items, instead of a field name.
const items = ""

var (
	// confinement contains the fields that the security contexts of pods and containers have in common.
	confinement = fields{
		"runAsUser":       nil,
		"runAsNonRoot":    nil,
		"seccompProfile":  nil,
		"appArmorProfile": nil,
		// A release may set one of these fields and another writer another one.
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
	// podSpecs contains the paths of pod specs in pods, workloads and CronJobs.
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

// mayLoosen reports whether an entry names a field that can loosen security. It avoids parsing almost all entries.
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

// parse returns the fields of an entry, or nil if they are unreadable.
func parse(e *metav1.ManagedFieldsEntry) *fieldpath.Set {
	set := &fieldpath.Set{}
	if err := set.FromJSON(e.FieldsV1.GetRawReader()); err != nil {
		return nil
	}
	return set
}

// ownSet returns the fields of our last apply, which is empty if they are unreadable.
func ownSet(entries []metav1.ManagedFieldsEntry) *fieldpath.Set {
	for i := range entries {
		if e := &entries[i]; isOurs(e) && e.FieldsV1 != nil {
			if set := parse(e); set != nil {
				return set
			}
		}
	}
	return &fieldpath.Set{}
}

// walk calls found with the path of every field of a tree that set contains and own does not.
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

// has reports whether a set contains a field or anything below it.
func has(set *fieldpath.Set, e fieldpath.PathElement) bool {
	_, below := set.Children.Get(e)
	return below || set.Members.Has(e)
}
