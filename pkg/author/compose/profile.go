package compose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/author/annotate"
	"github.com/cluster-version/cvo/pkg/author/assemble"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/author/assemble/substitute"
	"github.com/cluster-version/cvo/pkg/inclusion"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Folders describes the manifests in an author's folders.
type Folders struct {
	// Profile is the cluster profile that the other fields are about.
	Profile string
	// Manifests is the number of objects.
	Manifests int
	// Annotated lists the objects that got the annotation of the profile.
	Annotated []Object
	// Excluded lists the objects that a cluster with the profile and the default feature set does not get.
	Excluded []Object
	// Unused describes the placeholders that no manifest of their component contains, which may be misspelled.
	Unused []string
}

// Object is an object in a folder.
type Object struct {
	Component, File string
	ID              manifest.ID
	// Reason is the reason for the exclusion.
	Reason string
}

// annotate adds the annotation of the profile to the folders' manifests that name none. It rejects components without manifests for the
// profile, because a cluster would install nothing of them. It leaves out the operator's own manifests, which are templates.
func (in *Inputs) annotate(context.Context) error {
	profile := in.profile()
	if problems := validation.IsQualifiedName(api.IncludePrefix + profile); profile != "" && len(problems) > 0 {
		return contradiction("profile %q is not the name of an annotation: %s", profile, strings.Join(problems, "; "))
	}
	in.Folders.Profile = cmp.Or(profile, in.chosen.Profile, api.DefaultProfile)
	delete(in.Options.Annotations, api.AnnotatedManifestsAnnotation)
	var errs []error
	for i := range in.Options.Components {
		c := &in.Options.Components[i]
		if c.Name == assemble.OperatorComponent || !slices.Contains(in.own, c.Name) {
			continue
		}
		errs = append(errs, in.annotateComponent(c, profile))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := in.checkRelease(profile); err != nil {
		return err
	}
	return in.recordAnnotated(profile)
}

// profile returns the profile to add to manifests that name none; empty for none. A release is reproduced with the profile that it records.
func (in *Inputs) profile() string {
	switch {
	case in.chosen.Again:
		return annotate.ParseRecord(in.Options.Annotations).Profile
	case in.chosen.NoAnnotate:
		return ""
	}
	return in.chosen.Profile
}

// annotateComponent annotates the files of a component, and adds their objects to in.Folders.
func (in *Inputs) annotateComponent(c *input.Component, profile string) error {
	filter := inclusion.Filter{Profile: in.Folders.Profile}
	var manifests []*manifest.Manifest
	var errs []error
	invalid := false
	for i, f := range c.Files {
		if !manifest.IsFile(f.Name) {
			continue
		}
		got, err := annotate.File(f.Name, f.Data, profile)
		if err != nil {
			errs = append(errs, input.Mistake(path.Join(c.Name, f.Name), "component %s: %w", c.Name, err))
			continue
		}
		c.Files[i].Data, c.Files[i].Added = got.Data, got.Lines
		manifests, invalid = append(manifests, got.Manifests...), invalid || got.Invalid
		for _, id := range got.Objects {
			in.Folders.Annotated = append(in.Folders.Annotated, Object{Component: c.Name, File: f.Name, ID: id})
		}
		for _, m := range got.Manifests {
			if reason, excluded := filter.Exclude(m); excluded {
				in.Folders.Excluded = append(in.Folders.Excluded, Object{Component: c.Name, File: f.Name, ID: m.ID(), Reason: reason})
			}
		}
	}
	in.Folders.Manifests += len(manifests)
	if len(manifests) > 0 { // otherwise image-references only adds images
		in.Folders.Unused = append(in.Folders.Unused, unused(c)...)
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if profile == "" || in.chosen.Again || invalid { // assembling the release reports invalid files
		return nil
	}
	return checkProfile(c, manifests, filter)
}

// unused describes the placeholders of a component's image-references that none of its files uses.
func unused(c *input.Component) []string {
	var list []string
	for _, tag := range substitute.Unused(c) {
		list = append(list, fmt.Sprintf("component %s: %s replaces %q with image %s, but no manifest uses that placeholder",
			c.Name, input.ReferencesFile, tag.From.Name, tag.Name))
	}
	return list
}

// checkProfile rejects a component that has no manifests, or none for the filter's profile.
func checkProfile(c *input.Component, manifests []*manifest.Manifest, filter inclusion.Filter) error {
	switch {
	case slices.ContainsFunc(manifests, named(filter.Profile)):
		return nil
	case len(manifests) > 0:
		reason, _ := filter.Exclude(manifests[0])
		return input.Mistake(c.Name, "component %s has no manifest for profile %s, for example %s (%s): select another profile with --profile, or keep the manifests unchanged with --no-annotate",
			c.Name, filter.Profile, manifests[0], reason)
	case len(c.References) == 0:
		return input.Mistake(c.Name, "component %s has no manifests: add a .yaml or .json file to the folder, or remove the folder", c.Name)
	}
	return nil
}

// checkRelease rejects a release with components of an author that contains no manifest for the profile. Without a profile, the author wants
// the manifests unchanged.
func (in *Inputs) checkRelease(profile string) error {
	if profile == "" || in.chosen.Again || len(in.own) == 0 || in.Folders.Manifests > len(in.Folders.Excluded) {
		return nil
	}
	for _, c := range in.Options.Components {
		if c.Name == assemble.OperatorComponent {
			continue
		}
		for _, f := range c.Files {
			if !manifest.IsFile(f.Name) {
				continue
			}
			examined := manifest.Examine(f.Name, f.Data)
			if len(examined.Errors) > 0 || slices.ContainsFunc(examined.Manifests, named(in.Folders.Profile)) { // assembling the release reports invalid files
				return nil
			}
		}
	}
	return input.Mistake("", "the release has no manifest for profile %s: add manifests to a component, select another profile with --profile, or keep the manifests unchanged with --no-annotate",
		in.Folders.Profile)
}

// named returns a function that reports whether a manifest names a profile.
func named(profile string) func(m *manifest.Manifest) bool {
	return func(m *manifest.Manifest) bool { return m.Object.GetAnnotations()[api.IncludePrefix+profile] == "true" }
}

// recordAnnotated records the annotated manifests in the release.
func (in *Inputs) recordAnnotated(profile string) error {
	if len(in.Folders.Annotated) == 0 {
		return nil
	}
	record := annotate.Record{Profile: profile}
	for _, o := range in.Folders.Annotated {
		record.Manifests = append(record.Manifests, fmt.Sprintf("%s/%s: %s", o.Component, o.File, o.ID))
	}
	value, err := record.Annotation()
	if err != nil {
		return err
	}
	if in.Options.Annotations == nil {
		in.Options.Annotations = map[string]string{}
	}
	in.Options.Annotations[api.AnnotatedManifestsAnnotation] = value
	return nil
}
