// Package platform creates signed releases of the example platform in a registry. The platform's components are real programs. The package
// follows the documentation for platform teams: it runs the commands of hack and of cvo and does not import their packages.
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

	"github.com/cluster-version/cvo/test/env"
)

const (
	// created is the creation time of all parts, so that equal parts have equal digests.
	created = "1767225600" // 2026-01-01
	// version is the version of the operator and its image.
	version = "v0.0.0-e2e"
)

// Options are the options of a Platform.
type Options struct {
	// Dir receives keys, credentials and copies of manifests. Each platform needs its own.
	Dir string
	// Cache receives programs and the operator's image, and may be reused; default bin/e2e in the repository.
	Cache string
	// Host is the host part of the registry's pullspecs.
	Host string
	// Credentials are the registry's credentials in the format of a pull secret; default none.
	Credentials []byte
	// CA is the certificate of the registry's authority as PEM; default is the system's.
	CA []byte
	// Releases and Components are repositories; the defaults are platform/release and components. Each component has its own repository
	// below Components.
	Releases, Components string
}

// Platform creates releases.
type Platform struct {
	// CVO is the path of the program, built from this repository.
	CVO string
	// Trust is the file for `cvo install --trust`.
	Trust string
	// Base is the operator's image, an OCI layout on which releases are built.
	Base string
	// Credentials and CA are the files for --registry-config and --certificate-authority of cvo's commands; empty for none.
	Credentials, CA string

	opts Options
	root string
	key  string
}

// New builds the parts of releases, pushes the components' images and creates a key.
func New(ctx context.Context, o Options) (*Platform, error) {
	root, err := env.ModuleRoot()
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
		if err := os.MkdirAll(*dir, 0o755); err != nil { // only the keys in it are secret
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

// file writes an input of commands to a file. Without content it writes no file.
func (p *Platform) file(name string, content []byte) (string, error) {
	if len(content) == 0 {
		return "", nil
	}
	path := filepath.Join(p.opts.Dir, name)
	return path, os.WriteFile(path, content, 0o600)
}

// alone fills the cache under a lock, because other processes may fill it at the same time.
func (p *Platform) alone(do func() error) (err error) {
	lock, err := os.Create(filepath.Join(p.opts.Cache, "lock"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("waiting for another build: %w", err)
	}
	return do()
}

// buildPrograms builds the programs in images and the programs that create images, with the overlay of a release.
func (p *Platform) buildPrograms(ctx context.Context) error {
	if _, err := p.command(ctx, nil, "go", "generate", "./manifests"); err != nil {
		return err
	}
	overlay := filepath.Join(p.opts.Cache, "overlay", "overlay.json")
	if _, err := p.command(ctx, nil, "go", "run", "./hack/overlay", overlay); err != nil {
		return err
	}
	_, err := p.command(ctx, []string{"CGO_ENABLED=0", "GOOS=linux"}, "go", "build", "-trimpath", "-buildvcs=false", "-overlay", overlay,
		"-ldflags", "-s -w -X github.com/cluster-version/cvo/pkg/cli.version="+version, "-o", filepath.Dir(p.CVO)+"/",
		"./cmd/cvo", "./examples/operator", "./hack/image", "./hack/exampleimage")
	return err
}

// program returns the path of a program that buildPrograms has built.
func (p *Platform) program(name string) string { return filepath.Join(filepath.Dir(p.CVO), name) }

// buildBase creates the image that contains cvo. It keeps an existing image as long as cvo and the program that creates the image do not
// change.
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

// pushComponents pushes the images of all components in all versions.
func (p *Platform) pushComponents(ctx context.Context) error {
	args := []string{
		"-binary", p.program("operator"), "-to", p.opts.Host + "/" + p.opts.Components, "-mappings", p.mappings(),
	}
	if _, err := p.command(ctx, []string{"SOURCE_DATE_EPOCH=" + created}, p.program("exampleimage"), append(args, p.access()...)...); err != nil {
		return fmt.Errorf("pushing the components: %w", err)
	}
	return nil
}

// NodeStage builds the component image of the node stage, pushes it and returns its pullspec with its digest.
func (p *Platform) NodeStage(ctx context.Context) (string, error) {
	binary := filepath.Join(p.opts.Dir, "cvo-node")
	if _, err := p.command(ctx, []string{"CGO_ENABLED=0", "GOOS=linux"}, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -X github.com/cluster-version/cvo/pkg/node/cli.version="+version, "-o", binary, "./cmd/cvo-node"); err != nil {
		return "", err
	}
	args := []string{
		"-node", "-binary", runtime.GOARCH + "=" + binary, "-version", version,
		"-to-image", p.opts.Host + "/" + p.opts.Components + "/machine-config-operator:" + version,
	}
	out, err := p.command(ctx, []string{"SOURCE_DATE_EPOCH=" + created}, p.program("image"), append(args, p.access()...)...)
	if err != nil {
		return "", fmt.Errorf("pushing the node stage: %w", err)
	}
	return strings.TrimSpace(out), nil
}

// access returns the flags of the programs of hack for the registry.
func (p *Platform) access() (flags []string) {
	if p.Credentials != "" {
		flags = append(flags, "-registry-config", p.Credentials)
	}
	if p.CA != "" {
		flags = append(flags, "-certificate-authority", p.CA)
	}
	return flags
}

func (p *Platform) mappings() string { return filepath.Join(p.opts.Dir, "mappings") }

func (p *Platform) makeKey(ctx context.Context) error {
	if _, err := os.Stat(p.key); err == nil {
		return nil
	}
	_, err := p.command(ctx, nil, p.CVO, "release", "keygen", "--out", filepath.Dir(p.key))
	return err
}

// Release describes a release.
type Release struct {
	// Version is the release's version.
	Version string
	// From is the version in examples/platform that has the manifests; default Version.
	From string
	// Previous are the versions from which an update to this one is possible.
	Previous []string
	// Changes are applied to a copy of the manifests.
	Changes []Change
	// Unsigned omits the signature.
	Unsigned bool
	// Flags are additional flags of `cvo release new`.
	Flags []string
}

// Release creates, pushes and signs a release. It returns the pullspec with its digest.
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
		return "", fmt.Errorf("creating release %s: %w", r.Version, err)
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

// Run runs a command of cvo that uses the registry and returns its output.
func (p *Platform) Run(ctx context.Context, args ...string) (string, error) {
	if p.Credentials != "" {
		args = append(args, "--registry-config", p.Credentials)
	}
	if p.CA != "" {
		args = append(args, "--certificate-authority", p.CA)
	}
	return p.command(ctx, []string{"SOURCE_DATE_EPOCH=" + created}, p.CVO, args...)
}

// command runs a program in the root of the repository. An error contains its output.
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
