package cli_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/test/clusterversions"
)

func TestUpgradeRejectsContradictoryFlags(t *testing.T) {
	image := "--to-image=" + clusterversions.Mirrored("3")
	for _, test := range []struct{ args, want string }{
		{"--clear --to=4.14.3", "--clear may not be specified with any other flags"},
		{"--clear --to-latest", "--clear may not be specified with any other flags"},
		{"--clear --to-multi-arch", "--clear may not be specified with any other flags"},
		{"--clear " + image, "--clear may not be specified with any other flags"},
		{"--to-multi-arch --to=4.14.3", "--to-multi-arch may not be used with --to, --to-image, or --to-latest"},
		{"--to=4.14.3 " + image, "only one of --to or --to-image may be provided"},
		{"--to-latest --to=4.14.3", "--to-latest may not be used with --to or --to-image"},
		{"--to-latest " + image, "--to-latest may not be used with --to or --to-image"},
		{"--to=", "--to has no value"},
		{"--to-image=", "--to-image has no value"},
		{"--to=../../x", "--to must be a semantic version (e.g. 4.0.1 or 4.1.0-nightly-20181104): major, minor and patch must be numbers"},
		{"--to=4.14", "--to must be a semantic version (e.g. 4.0.1 or 4.1.0-nightly-20181104): "},
		{"--to-image=a/b:c:d", "--to-image must be a valid image pull spec: "},
		{"--to-image=4.14.3", "--to-image must be a valid image pull spec: no registry or repository specified"},
		{"--to-image=registry.example:5000/rel", "--to-image must be a valid image pull spec: no tag or digest specified"},
		{"--to-image=" + clusterversions.Mirrored("3") + " --insecure", "--insecure configures the registry that resolves a tag"},
		{"--to=4.14.3 --idms-file=x", "--idms-file configures the registry that resolves a tag"},
		{"--force", "--force modifies a request"},
		{"--allow-not-recommended", "--allow-not-recommended modifies a request"},
		{"--dry-run", "--dry-run modifies a request"},
		{"--exit-code --to=4.14.3", "--exit-code reports the state"},
		{"--to=4.14.3 --dry-run=maybe", "use none, server or client"},
		{"--to=4.14.3 -o xml", `unknown output "xml"`},
		{"-o xml", `unknown output "xml"`},
		{"4.14.3", `unknown command "4.14.3"`},
		{"rollback 4.14.0", `unexpected argument "4.14.0"`},
	} {
		t.Run(test.args, func(t *testing.T) {
			out, errs, code := upgradeWith(t, "/nonexistent", strings.Fields(test.args)...)
			assert.Empty(t, out)
			assert.Contains(t, errs, "error: ")
			assert.Contains(t, errs, test.want)
			assert.Equal(t, command.ExitUsage, code)
		})
	}
}
