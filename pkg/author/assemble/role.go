package assemble

import (
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cluster-version/cvo/pkg/author/assemble/input"
	"github.com/cluster-version/cvo/pkg/author/assemble/layer"
	"github.com/cluster-version/cvo/pkg/engine/permission"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
)

// operatorRole is the ClusterRole of an operator that does not need cluster-admin.
var operatorRole = manifest.ID{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "cluster-version-operator"}

// role returns the file with the permissions for applying the release, computed from the manifests for all clusters. It returns no file
// for a release with another operator, which defines its own permissions.
func (o *Options) role(p plan) ([]input.File, error) {
	operator := p.operator
	if base := o.base(); base != nil {
		var err error
		if operator, err = layer.Files(base, payload.OperatorDir); err != nil {
			return nil, fmt.Errorf("reading the base image: %w", err)
		}
	}
	manifests, brought, err := o.operatorManifests(operator)
	if err != nil || !brought {
		return nil, err
	}
	for _, f := range p.manifests {
		if f.Name == permission.File || !manifest.IsFile(f.Name) {
			continue
		}
		list, err := manifest.Parse(f.Name, f.Data, manifest.Limits{})
		if err != nil {
			return nil, err
		}
		manifests = append(manifests, list...)
	}
	data, err := permission.ReleaseManifest(manifests)
	if err != nil {
		return nil, err
	}
	return []input.File{{Name: permission.File, Data: data}}, nil
}

func (o *Options) base() v1.Image {
	if len(o.Platforms) > 0 {
		return o.Platforms[0].Base
	}
	return o.Base
}

// operatorManifests reads the operator's own templates and reports whether they contain the operator's role. It includes objects that the
// default profile excludes by identity only, which is sufficient here.
func (o *Options) operatorManifests(files []input.File) (list []*manifest.Manifest, found bool, err error) {
	metadata := fmt.Sprintf(`{"kind":"cincinnati-metadata-v0","version":%q}`, o.Version)
	references := fmt.Sprintf(`{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":%q}}`, o.Version)
	fsys, err := layer.FS(map[string][]input.File{
		payload.OperatorDir: files,
		payload.ReleaseDir:  {{Name: metadataFile, Data: []byte(metadata)}, {Name: input.ReferencesFile, Data: []byte(references)}},
	})
	if err != nil {
		return nil, false, err
	}
	p, err := payload.Load(fsys, OperatorComponent, payload.Options{})
	if err != nil {
		return nil, false, fmt.Errorf("reading the operator's own manifests: %w", err)
	}
	list = p.Manifests
	for _, e := range p.Excluded {
		list = append(list, e.Manifest)
	}
	for _, m := range list {
		found = found || m.ID() == operatorRole
	}
	return list, found, nil
}
