package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sync/errgroup"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/test/fixture"
)

const (
	version              = "1.0.0"
	componentsRepository = "upstream/components"
	releaseRepository    = "upstream/release"
	targetRepository     = "mirror/platform"
)

// layers are the layers of each component image: the size in bytes and the number of images that share the layer.
var layers = []struct{ size, shared int }{
	{4 << 20, 1000},
	{2 << 20, 1000},
	{1 << 20, 20},
	{1 << 20, 10},
	{256 << 10, 1},
	{256 << 10, 1},
	{512 << 10, 1},
	{1 << 20, 1},
}

// prepared is the release to be copied.
type prepared struct {
	source *running
	dir    string
	filled
	// trust is the path of the trust policy. list is the path of the list of all images for the plain copy.
	trust, list string
}

// filled is the output of the process that fills the source.
type filled struct {
	Release   string         `json:"release"`
	Digest    release.Digest `json:"digest"`
	Pullspecs []string       `json:"pullspecs"`
	Blobs     int            `json:"blobs"`
	Bytes     int64          `json:"bytes"`
}

// prepare fills the source registry with a signed release. It uses another process, because child processes inherit the peak memory of
// their parent, which would distort their figures.
func prepare(ctx context.Context, o options) (*prepared, error) {
	p := &prepared{}
	var err error
	if p.dir, err = os.MkdirTemp("", "mirrorbench-"); err != nil {
		return nil, err
	}
	if p.source, err = startRegistry(ctx, o.latency); err != nil {
		return p, err
	}
	self, err := os.Executable()
	if err != nil {
		return p, err
	}
	cmd := exec.CommandContext(ctx, self, "fill", p.source.host, strconv.Itoa(o.images), strconv.Itoa(o.shrink))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return p, fmt.Errorf("filling the source: %w", err)
	}
	if err := json.Unmarshal(out, &p.filled); err != nil {
		return p, err
	}
	return p, p.write()
}

// fill is the process that fills the source, with the arguments HOST IMAGES SHRINK.
func fill(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return errors.New("usage: fill HOST IMAGES SHRINK")
	}
	host := args[0]
	images, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	shrink, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	f := filled{Pullspecs: make([]string, images+1), Release: fmt.Sprintf("%s/%s:%s-x86_64", host, releaseRepository, version)}
	sizes := map[v1.Hash]int64{}
	tags := make([]map[string]any, images)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for i := range images {
		img, err := componentImage(i, shrink)
		if err != nil {
			return err
		}
		digest, err := count(sizes, img)
		if err != nil {
			return err
		}
		f.Pullspecs[i+1] = fmt.Sprintf("%s/%s@%s", host, componentsRepository, digest)
		tags[i] = map[string]any{"name": fmt.Sprintf("component-%03d", i), "from": map[string]any{"kind": "DockerImage", "name": f.Pullspecs[i+1]}}
		group.Go(func() error {
			return push(groupCtx, img, fmt.Sprintf("%s/%s:component-%03d", host, componentsRepository, i))
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	img, err := releaseImage(tags)
	if err != nil {
		return err
	}
	if f.Digest, err = count(sizes, img); err != nil {
		return err
	}
	if err := push(ctx, img, f.Release); err != nil {
		return err
	}
	f.Pullspecs[0] = fmt.Sprintf("%s/%s@%s", host, releaseRepository, f.Digest)
	f.Blobs = len(sizes)
	for _, size := range sizes {
		f.Bytes += size
	}
	return json.NewEncoder(os.Stdout).Encode(f)
}

// write signs the release and writes the tools' input files.
func (p *prepared) write() error {
	signer, err := fixture.NewSigner("bench", fixture.SignerOptions{})
	if err != nil {
		return err
	}
	store := filepath.Join(p.dir, "signatures")
	if _, err := signer.WriteSignature(store, release.Image{Pullspec: p.Release, Digest: p.Digest}); err != nil {
		return err
	}
	trust, err := signer.Trust("file://" + store)
	if err != nil {
		return err
	}
	list, err := json.Marshal(p.Pullspecs)
	if err != nil {
		return err
	}
	p.trust, p.list = filepath.Join(p.dir, "trust.yaml"), filepath.Join(p.dir, "images.json")
	if err := os.WriteFile(p.trust, trust, 0o644); err != nil {
		return err
	}
	return os.WriteFile(p.list, list, 0o644)
}

// componentImage returns the i-th image. Its layers are noise, like compressed data, but the same in every run.
func componentImage(i, shrink int) (v1.Image, error) {
	img := empty.Image
	config := &v1.ConfigFile{OS: "linux", Architecture: "amd64", RootFS: v1.RootFS{Type: "layers"}}
	for at, l := range layers {
		content := static.NewLayer(noise(uint64(at)<<32|uint64(i/l.shared), l.size/shrink), types.DockerLayer)
		var err error
		if img, err = mutate.AppendLayers(img, content); err != nil {
			return nil, err
		}
		diffID, err := content.DiffID()
		if err != nil {
			return nil, err
		}
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, diffID)
	}
	return mutate.ConfigFile(img, config)
}

func noise(seed uint64, size int) []byte {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	out := make([]byte, size)
	_, _ = rand.NewChaCha8(key).Read(out) // it never fails
	return out
}

func releaseImage(tags []map[string]any) (v1.Image, error) {
	references, err := json.Marshal(map[string]any{
		"apiVersion": "image.openshift.io/v1", "kind": "ImageStream",
		"metadata": map[string]any{"name": version}, "spec": map[string]any{"tags": tags},
	})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	archive := tar.NewWriter(packed)
	for _, file := range []struct {
		name string
		data []byte
	}{
		{"manifests/0000_00_a.yaml", []byte("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: a\n")},
		{"release-manifests/release-metadata", fmt.Appendf(nil, `{"kind": "cincinnati-metadata-v0", "version": %q, "previous": []}`, version)},
		{"release-manifests/image-references", references},
	} {
		if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: file.name, Mode: 0o444, Size: int64(len(file.data))}); err != nil {
			return nil, err
		}
		if _, err := archive.Write(file.data); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	if err := packed.Close(); err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, static.NewLayer(out.Bytes(), types.DockerLayer))
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", "amd64"
	config.Config.Labels = map[string]string{api.ReleaseLabel: version}
	return mutate.ConfigFile(img, config)
}

func push(ctx context.Context, img v1.Image, pullspec string) error {
	ref, err := name.ParseReference(pullspec)
	if err != nil {
		return err
	}
	if err := remote.Write(ref, img, remote.WithContext(ctx)); err != nil {
		return fmt.Errorf("filling the source: %w", err)
	}
	return nil
}

// count adds the manifest and the blobs of an image to sizes and returns the digest of the image.
func count(sizes map[v1.Hash]int64, img v1.Image) (release.Digest, error) {
	manifest, err := img.Manifest()
	if err != nil {
		return "", err
	}
	for _, desc := range append(manifest.Layers, manifest.Config) {
		sizes[desc.Digest] = desc.Size
	}
	digest, err := img.Digest()
	return release.Digest(digest.String()), err
}

func (p *prepared) remove() {
	if p.source != nil {
		_ = p.source.stop()
	}
	_ = os.RemoveAll(p.dir)
}
