package assemble

import (
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/permission"
)

// operatorRole is the ClusterRole by which an operator's set tells that the operator does with less than cluster-admin.
var operatorRole = manifest.ID{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "cluster-version-operator"}

// role returns the file with what applying the release takes, made of all its manifests, whichever cluster gets them. A
// release on another operator, which does as it likes, has none.
func (o *Options) role(p plan) ([]File, error) {
	operator := p.operator
	if base := o.base(); base != nil {
		files, err := imageFiles(base, operatorFolder)
		if err != nil {
			return nil, fmt.Errorf("reading the base image: %w", err)
		}
		operator = files[operatorFolder]
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
	return []File{{Name: permission.File, Data: data}}, nil
}

func (o *Options) base() v1.Image {
	if len(o.Platforms) > 0 {
		return o.Platforms[0].Base
	}
	return o.Base
}

// operatorManifests reads the operator's own set, which are templates, and reports whether it has the operator's role.
// Of what the default profile leaves out there are names, which is all that the set takes.
func (o *Options) operatorManifests(files []File) (list []*manifest.Manifest, brought bool, err error) {
	metadata := fmt.Sprintf(`{"kind":"cincinnati-metadata-v0","version":%q}`, o.Version)
	references := fmt.Sprintf(`{"kind":"ImageStream","apiVersion":"image.openshift.io/v1","metadata":{"name":%q}}`, o.Version)
	fsys, err := archiveFS(map[string][]File{
		operatorFolder: files,
		releaseFolder:  {{Name: metadataFile, Data: []byte(metadata)}, {Name: referencesFile, Data: []byte(references)}},
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
		brought = brought || m.ID() == operatorRole
	}
	return list, brought, nil
}
