// Package platform makes signed releases of the example platform in a registry, whose components are real programs. It
// goes the way that its documentation tells a platform team: it runs the commands of hack and those of cvo, and uses none
// of their packages.
package platform

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"
)

const (
	// created is the time of everything that is made, so that it is made only once.
	created = "1767225600" // 2026-01-01
	// version is that of the operator and its image.
	version = "v0.0.0-e2e"
)

// Options say where releases are made.
type Options struct {
	// Dir receives keys, credentials and copies of manifests; it belongs to one platform.
	Dir string
	// Cache receives programs and the operator's image, and may be kept; default bin/e2e in the repository.
	Cache string
	// Host is how the registry's pullspecs begin.
	Host string
	// Credentials are those of the registry, in the format of a pull secret; default none.
	Credentials []byte
	// CA is the certificate to trust the registry by, as PEM; default the system's.
	CA []byte
	// Releases and Components are repositories; defaults platform/release, and components, below which every component
	// has its own.
	Releases, Components string
}

// Platform makes releases.
type Platform struct {
	// CVO is the program, built from this repository.
	CVO string
	// Trust is the file that `cvo install --trust` is given.
	Trust string
	// Base is the operator's image, an OCI layout that releases are built on.
	Base string
	// Credentials and CA are the files that the commands of cvo are given as --registry-config and
	// --certificate-authority; empty for none.
	Credentials, CA string

	opts Options
	root string
	key  string
}

// New builds what releases are made of, pushes the components' images and makes a key.
func New(ctx context.Context, o Options) (*Platform, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return nil, err
	}
	for _, setting := range []struct {
		value        *string
		defaultValue string
	}{{&o.Cache, filepath.Join(root, "bin/e2e")}, {&o.Releases, "platform/release"}, {&o.Components, "components"}} {
		if *setting.value == "" {
			*setting.value = setting.defaultValue
		}
	}
	for _, dir := range []*string{&o.Dir, &o.Cache} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return nil, err
		}
		if err := os.MkdirAll(*dir, 0o755); err != nil { //nolint:gosec // nothing in it is a secret but the keys
			return nil, err
		}
	}
	p := &Platform{
		CVO: filepath.Join(o.Cache, "bin/cvo"), Base: filepath.Join(o.Cache, "base"),
		Trust: filepath.Join(o.Dir, "keys/trust.yaml"), key: filepath.Join(o.Dir, "keys/private.pem"),
		opts: o, root: root,
	}
	if p.Credentials, err = p.file("auth.json", o.Credentials); err != nil {
		return nil, err
	}
	if p.CA, err = p.file("ca.pem", o.CA); err != nil {
		return nil, err
	}
	if err := p.alone(func() error { return p.buildPrograms(ctx) }); err != nil {
		return nil, err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.alone(func() error { return p.buildBase(ctx) }) })
	group.Go(func() error { return p.pushComponents(ctx) })
	group.Go(func() error { return p.makeKey(ctx) })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return p, nil
}

// file writes what commands are given as a file; nothing is no file.
func (p *Platform) file(name string, content []byte) (string, error) {
	if len(content) == 0 {
		return "", nil
	}
	path := filepath.Join(p.opts.Dir, name)
	return path, os.WriteFile(path, content, 0o600)
}

// alone does what fills the cache, which others may want at the same time.
func (p *Platform) alone(do func() error) (err error) {
	lock, err := os.Create(filepath.Join(p.opts.Cache, "lock"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("waiting for others that build: %w", err)
	}
	return do()
}

// buildPrograms builds what goes into images, and what packs them.
func (p *Platform) buildPrograms(ctx context.Context) error {
	if _, err := p.command(ctx, nil, "go", "generate", "./manifests"); err != nil {
		return err
	}
	_, err := p.command(ctx, []string{"CGO_ENABLED=0", "GOOS=linux"}, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -X github.com/cluster-version/cvo/pkg/cli.version="+version, "-o", filepath.Dir(p.CVO)+"/",
		"./cmd/cvo", "./examples/operator", "./hack/image", "./hack/exampleimage")
	return err
}

// program is one that buildPrograms has built.
func (p *Platform) program(name string) string { return filepath.Join(filepath.Dir(p.CVO), name) }

// buildBase makes the image that brings cvo into clusters, which is kept for as long as cvo, and what packs it, are the
// same.
func (p *Platform) buildBase(ctx context.Context) error {
	hash := sha256.New()
	for _, file := range []string{p.CVO, p.program("image")} {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		hash.Write(content)
	}
	made, want := p.Base+".of", hex.EncodeToString(hash.Sum(nil))
	if of, err := os.ReadFile(made); err == nil && string(of) == want {
		return nil
	}
	if err := errors.Join(os.RemoveAll(made), os.RemoveAll(p.Base)); err != nil {
		return err
	}
	if _, err := p.command(ctx, []string{"SOURCE_DATE_EPOCH=" + created}, p.program("image"),
		"-binary", runtime.GOARCH+"="+p.CVO, "-version", version, "-to-oci", p.Base); err != nil {
		return fmt.Errorf("packing the operator's image: %w", err)
	}
	return os.WriteFile(made, []byte(want), 0o600)
}

// pushComponents pushes the images of all components of all versions.
func (p *Platform) pushComponents(ctx context.Context) error {
	args := []string{
		"-binary", p.program("operator"), "-to", p.opts.Host + "/" + p.opts.Components, "-mappings", p.mappings(),
	}
	if p.Credentials != "" {
		args = append(args, "-registry-config", p.Credentials)
	}
	if p.CA != "" {
		args = append(args, "-certificate-authority", p.CA)
	}
	if _, err := p.command(ctx, []string{"SOURCE_DATE_EPOCH=" + created}, p.program("exampleimage"), args...); err != nil {
		return fmt.Errorf("pushing the components: %w", err)
	}
	return nil
}

func (p *Platform) mappings() string { return filepath.Join(p.opts.Dir, "mappings") }

func (p *Platform) makeKey(ctx context.Context) error {
	if _, err := os.Stat(p.key); err == nil {
		return nil
	}
	_, err := p.command(ctx, nil, p.CVO, "release", "keygen", "--out", filepath.Dir(p.key))
	return err
}

// Release says what a release is to be like.
type Release struct {
	// Version is the release's.
	Version string
	// From is the version in examples/platform whose manifests it has; default Version.
	From string
	// Previous are the versions that may be updated to this one.
	Previous []string
	// Changes are made to a copy of the manifests.
	Changes []Change
	// Unsigned leaves the signature out.
	Unsigned bool
	// Flags are further ones of `cvo release new`.
	Flags []string
}

// Release makes, pushes and signs a release, and returns its pullspec by digest.
func (p *Platform) Release(ctx context.Context, r Release) (string, error) {
	if r.From == "" {
		r.From = r.Version
	}
	dir, err := os.MkdirTemp(p.opts.Dir, "release-"+r.Version+"-")
	if err != nil {
		return "", err
	}
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(p.root, "examples/platform", r.From))); err != nil {
		return "", fmt.Errorf("copying the manifests of %s: %w", r.From, err)
	}
	for _, change := range r.Changes {
		if err := change(dir); err != nil {
			return "", fmt.Errorf("changing the manifests of %s: %w", r.Version, err)
		}
	}
	repository := p.opts.Host + "/" + p.opts.Releases
	result := dir + ".json"
	args := []string{
		"release", "new", "--from-dir", dir, "--name", r.Version, "--previous", strings.Join(r.Previous, ","),
		"--mapping-file", filepath.Join(p.mappings(), r.From+".mapping"), "--to-image-base", p.Base,
		"--to-image", repository + ":" + r.Version, "--result-file", result, "--quiet",
	}
	if _, err := p.Run(ctx, append(args, r.Flags...)...); err != nil {
		return "", fmt.Errorf("making release %s: %w", r.Version, err)
	}
	data, err := os.ReadFile(result)
	if err != nil {
		return "", err
	}
	var made struct{ Digest string }
	if err := json.Unmarshal(data, &made); err != nil || made.Digest == "" {
		return "", fmt.Errorf("reading the result of release %s: no digest in %s (%w)", r.Version, data, err)
	}
	pullspec := repository + "@" + made.Digest
	if r.Unsigned {
		return pullspec, nil
	}
	if _, err := p.Run(ctx, "release", "sign", pullspec, "--key", p.key); err != nil {
		return "", fmt.Errorf("signing release %s: %w", r.Version, err)
	}
	return pullspec, nil
}

// Run runs a command of cvo that reaches the registry, and returns what it prints.
func (p *Platform) Run(ctx context.Context, args ...string) (string, error) {
	if p.Credentials != "" {
		args = append(args, "--registry-config", p.Credentials)
	}
	if p.CA != "" {
		args = append(args, "--certificate-authority", p.CA)
	}
	return p.command(ctx, []string{"SOURCE_DATE_EPOCH=" + created}, p.CVO, args...)
}

// command runs a program at the root of the repository; what it says is part of the error.
func (p *Platform) command(ctx context.Context, environment []string, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir = p.root
	command.Env = append(os.Environ(), environment...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w: %s", command, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

func moduleRoot(ctx context.Context) (string, error) {
	file, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("looking for the repository: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(file))), nil
}
