package compose

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	imagev1 "github.com/openshift/api/image/v1"

	"github.com/cluster-version/cvo/internal/errorset"
	"github.com/cluster-version/cvo/pkg/author/assemble"
	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/author/assemble/substitute"
	"github.com/cluster-version/cvo/pkg/author/lint/source"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
)

// missingFolder is package lint's rule for missing folders.
const missingFolder = "folder"

// Lintable returns the files of an assembled release to lint, and the rules to disable. It omits files in a base image and the operator's
// manifests in this program, which the author of the release cannot change.
func (in *Inputs) Lintable(result *assemble.Result) (files []source.File, disable []string, err error) {
	ownFolder := in.Options.Base == nil && len(in.Options.Platforms) == 0 && in.chosen.OperatorFolder != ""
	if !ownFolder {
		// The operator's folder may be in the base image. A push needs only the base image's digests.
		disable = []string{missingFolder}
		if files, err = in.baseObjects(); err != nil {
			return nil, nil, err
		}
	}
	for _, f := range result.Files() {
		if !isMonitoring(in.chosen.Monitoring, f) && (ownFolder || f.Origin != "" || path.Dir(f.Name) != payload.OperatorDir) {
			files = append(files, source.File{Name: f.Name, Data: f.Data, Origin: f.Origin, Added: f.Added})
		}
	}
	return files, disable, nil
}

// LintFolder assembles the files of a release from a folder of components. It returns the files to lint, the rules to disable, and the
// mistakes for which the folder cannot become a release. Mistakes inside manifests are left to package lint. LintFolder reads no images.
func LintFolder(ctx context.Context, dir string, opts Options) (files []source.File, disable []string, mistakes []*input.ContentError, err error) {
	opts.Folders, opts.Offline, opts.NoOperator = []string{dir}, true, true
	in := &Inputs{chosen: opts, tolerant: true}
	if err := in.gather(ctx); err != nil {
		return nil, nil, nil, err
	}
	in.addMissing()
	result, err := assemble.Draft(in.Options)
	if result == nil {
		return nil, nil, nil, err
	}
	for _, err := range append(in.mistakes, errorset.Split(err)...) {
		mistake, content := errors.AsType[*input.ContentError](err)
		_, invalid := errors.AsType[*manifest.Error](err)
		switch {
		case content:
			mistakes = append(mistakes, mistake)
		case !invalid:
			mistakes = append(mistakes, &input.ContentError{Err: err})
		}
	}
	files, disable, err = in.Lintable(result)
	return files, disable, mistakes, err
}

// addMissing adds stand-ins for the images that components refer to but the release lacks, so that their placeholders are replaced. It adds
// the missing images to in.mistakes.
func (in *Inputs) addMissing() {
	for _, c := range in.Options.Components {
		for _, ref := range c.References {
			if slices.ContainsFunc(in.Options.Images, func(tag imagev1.TagReference) bool { return tag.Name == ref.Name }) {
				continue
			}
			in.Options.Images = append(in.Options.Images, input.ImageTag(ref.Name, "missing.invalid/"+ref.Name+"@sha256:"+strings.Repeat("0", 64)))
			in.mistakes = append(in.mistakes, substitute.MissingImage(c.Name, ref.Name))
		}
	}
}

// baseObjects returns the operator's CustomResourceDefinitions and Namespaces in a base image, which other manifests refer to. It does not
// read the image, and returns the objects in this program. The image's version may differ.
func (in *Inputs) baseObjects() ([]source.File, error) {
	set, err := input.ReadFiles(in.chosen.Operator)
	if err != nil {
		return nil, err
	}
	var files []source.File
	for _, f := range set {
		text, err := payload.Render(f.Name, f.Data, nil)
		if err != nil {
			return nil, fmt.Errorf("rendering %s: %w", f.Name, err)
		}
		if slices.ContainsFunc(manifest.Examine(f.Name, text).Manifests, isReferredTo) {
			files = append(files, source.File{Name: payload.OperatorDir + "/" + f.Name, Data: f.Data})
		}
	}
	return files, nil
}

// isReferredTo reports whether other manifests refer to a manifest of its kind.
func isReferredTo(m *manifest.Manifest) bool {
	return m.Is("apiextensions.k8s.io", "CustomResourceDefinition") || m.Is("", "Namespace")
}

// isMonitoring reports whether a file of a release is a manifest for monitoring. The release need not contain the CRDs of such manifests:
// the cluster is expected to have the Prometheus Operator's.
func isMonitoring(monitoring fs.FS, f input.File) bool {
	data, err := fs.ReadFile(monitoring, path.Base(f.Name))
	return err == nil && bytes.Equal(data, f.Data)
}
