// Package lint finds mistakes in the files of a release before a cluster does. It takes files by name and content. It returns findings
// with file, line and remedy. It has no side effects. Callers read images, print findings and decide how to treat them.
package lint

import (
	"github.com/cluster-version/cvo/pkg/author/lint/finding"
	"github.com/cluster-version/cvo/pkg/author/lint/images"
	"github.com/cluster-version/cvo/pkg/author/lint/kinds"
	"github.com/cluster-version/cvo/pkg/author/lint/object"
	"github.com/cluster-version/cvo/pkg/author/lint/relations"
	"github.com/cluster-version/cvo/pkg/author/lint/source"
)

// Options configure linting. The zero value checks all rules.
type Options struct {
	// Disable lists the IDs of rules to skip.
	Disable []string
	// Kubernetes is the Kubernetes version of the platform, such as 1.36. The default is the version in the release's image-references, or
	// the newest known version.
	Kubernetes string
	// From contains the files of the release that clusters update from. Without these files, rules that compare releases are skipped.
	From []source.File
	// Found are findings of earlier checks to add to the report.
	Found finding.List
}

// Check checks the files of a release, in any order. If several files have the same name, the last one counts.
func Check(files []source.File, opts Options) *finding.Report {
	var from *source.Release
	if len(opts.From) > 0 {
		from = source.Read(opts.From) // findings about the earlier release are not reported
	}
	r := source.Read(files)
	kindRules := kinds.New(r, from, kinds.Target(opts.Kubernetes, r.References.Kubernetes))
	r.EachFile(func(f *source.Parsed) {
		images.CheckFile(r, f)
		for _, o := range f.Objects {
			kindRules.Check(o)
			object.Check(r, o)
			images.CheckObject(o)
		}
	})
	relations.Check(r, from)
	images.CheckUnused(r)
	report := finding.NewReport(opts.Disable, append(r.Lists(), &opts.Found)...)
	report.Files, report.Objects = len(r.Files), len(r.Objects)
	for _, f := range files {
		if f.Origin != "" {
			report.Locate(f.Name, f.Origin, f.Added)
		}
	}
	return report
}
