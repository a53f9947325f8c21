package source

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/author/lint/finding"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/manifest/definition"
)

// Object is an object in the release.
type Object struct {
	*manifest.Manifest
	// In is the object's file.
	In    *Parsed
	reach inclusion.Reach
}

// Reach returns the clusters that the manifest is for.
func (o *Object) Reach() inclusion.Reach { return o.reach }

// Line is the first line of the object's document; 0 if unknown.
func (o *Object) Line() int { return o.In.lineOf(o.Document) }

// Place returns the object's location, such as `release-manifests/x.yaml:12`.
func (o *Object) Place() string {
	if line := o.Line(); line > 1 {
		return fmt.Sprintf("%s:%d", o.In.Name, line)
	}
	return o.In.Name
}

// IsCRD reports whether the object is a CRD.
func (o *Object) IsCRD() bool { return o.Is("apiextensions.k8s.io", "CustomResourceDefinition") }

// PodTemplate returns the path of the object's pod template; nil if its kind has none.
func (o *Object) PodTemplate() Path {
	switch gk := o.GVK().GroupKind(); gk.Group {
	case "":
		switch gk.Kind {
		case "Pod":
			return Path{}
		case "ReplicationController":
			return Path{"spec", "template"}
		}
	case "apps":
		switch gk.Kind {
		case "Deployment", "DaemonSet", "StatefulSet", "ReplicaSet":
			return Path{"spec", "template"}
		}
	case "batch":
		switch gk.Kind {
		case "Job":
			return Path{"spec", "template"}
		case "CronJob":
			return Path{"spec", "jobTemplate", "spec", "template"}
		}
	}
	return nil
}

// Find adds a finding about a field of the object (nil for the whole object) to its file's findings.
func (o *Object) Find(rule string, at Path, format string, args ...any) {
	o.FindIn(&o.In.Found, rule, at, format, args...)
}

// FindIn is like Find, but adds the finding to the given list.
func (o *Object) FindIn(list *finding.List, rule string, at Path, format string, args ...any) {
	list.Add(rule, o.In.Name, func() finding.Finding { return o.finding(at, format, args...) })
}

// FindAs is like FindIn, but with the given severity instead of the rule's.
func (o *Object) FindAs(severity finding.Severity, list *finding.List, rule string, at Path, format string, args ...any) {
	list.Add(rule, o.In.Name, func() finding.Finding {
		f := o.finding(at, format, args...)
		f.Severity = severity
		return f
	})
}

func (o *Object) finding(at Path, format string, args ...any) finding.Finding {
	id := o.ID()
	return finding.Finding{
		Line: o.In.locate(o.Document, at), Document: o.Document, Object: &id, Field: at.String(),
		Message: fmt.Sprintf(format, args...), Unused: o.reach.Never(),
	}
}

// Definition is a CRD in the release.
type Definition struct {
	CRD           *Object
	ClusterScoped bool
	// Versions are the versions by their names.
	Versions map[string]definition.Version
	// Storage is the version stored in etcd; empty if unknown.
	Storage string
}

// Served lists the served versions, or returns "nothing".
func (d *Definition) Served() string {
	var served []string
	for version, v := range d.Versions {
		if v.Served {
			served = append(served, version)
		}
	}
	slices.Sort(served)
	return cmp.Or(strings.Join(served, ", "), "nothing")
}

// Precedes reports whether every cluster that gets both objects applies this one first, unless it is moved: it is at a lower runlevel, or
// earlier in the same component.
func (o *Object) Precedes(other *Object) bool {
	return (o.Runlevel != other.Runlevel || o.Component == other.Component) && o.Compare(other.Manifest) < 0
}

// collect gathers the objects of all files, and data about other objects that checks of a single object need.
func (r *Release) collect() {
	for _, f := range r.Files {
		r.Objects = append(r.Objects, f.Objects...)
	}
	manifests := make([]*manifest.Manifest, 0, len(r.Objects))
	for _, o := range r.Objects {
		if o.IsCRD() && !o.Tombstone() {
			r.define(o)
		}
		if o.Is("", "Namespace") && !o.Tombstone() {
			r.Namespaces.Insert(o.Object.GetName())
		}
		manifests = append(manifests, o.Manifest)
		enabled, disabled := inclusion.FeatureGates(o.Manifest)
		r.KnownGates.Insert(enabled...).Insert(disabled...)
	}
	r.Gates = inclusion.ReadGates(manifests, r.Major())
}

func (r *Release) define(o *Object) {
	d := &Definition{CRD: o, Versions: map[string]definition.Version{}}
	scope, _, _ := unstructured.NestedString(o.Object.Object, "spec", "scope")
	d.ClusterScoped = scope == "Cluster"
	for _, v := range definition.Versions(o.Object.Object) {
		d.Versions[v.Name] = v
		if v.Storage {
			d.Storage = cmp.Or(d.Storage, v.Name)
		}
	}
	kind, _ := o.Defines()
	r.CRDs[kind] = append(r.CRDs[kind], d)
}

// Serving returns the CRDs of an object's kind that some cluster gets together with the object. If there are none, it returns all CRDs of
// the kind.
func (r *Release) Serving(o *Object) []*Definition {
	all := r.CRDs[o.GVK().GroupKind()]
	var meeting []*Definition
	for _, d := range all {
		if r.Meet(d.CRD, o) {
			meeting = append(meeting, d)
		}
	}
	if len(meeting) == 0 {
		return all
	}
	return meeting
}
