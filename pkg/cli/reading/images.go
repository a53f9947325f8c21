package reading

import (
	"io/fs"
	"slices"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/author/lint/source"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/update/images"
)

// WarnOfUnlistedImages prints a warning if manifests of a release, for any cluster, use images that the release does not list. action says
// in the warning what the command does not do with them, such as "copied".
func WarnOfUnlistedImages(streams command.Streams, release fs.FS, action string) error {
	files, err := source.ReadFiles(release)
	if err != nil {
		return err
	}
	r := source.Read(files)
	var manifests []*manifest.Manifest
	for _, o := range r.Objects {
		if !o.Reach().Never() {
			manifests = append(manifests, o.Manifest)
		}
	}
	var unlisted, components []string
	for pullspec, in := range images.Used(manifests) {
		if pullspec != payload.AnyRelease && !r.References.Pullspecs[string(pullspec)] {
			unlisted, components = append(unlisted, string(pullspec)), append(components, in...)
		}
	}
	if len(unlisted) == 0 {
		return nil
	}
	slices.Sort(unlisted)
	slices.Sort(components)
	components = slices.Compact(components)
	they := "they are"
	if len(unlisted) == 1 {
		they = "it is"
	}
	streams.Warnf("manifests of %s use %s that the release does not list, so %s not %s: %s", printable.List(components, printable.Few),
		printable.Count(len(unlisted), "image"), they, action, printable.List(unlisted, printable.Few))
	return nil
}
