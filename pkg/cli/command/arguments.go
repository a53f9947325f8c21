package command

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// CompleteFolders completes an argument that may be an OCI layout.
func CompleteFolders(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// plainArgument matches arguments that no shell changes.
var plainArgument = regexp.MustCompile(`^[a-zA-Z0-9_@%+=:,./-]+$`)

// Quote returns an argument for a command that the user copies into a shell.
func Quote(arg string) string {
	if plainArgument.MatchString(arg) {
		return arg
	}
	return "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
}

// VendorFlag is a flag of OpenShift's client for a vendor-specific feature. Accepting and ignoring it would mislead users.
type VendorFlag struct {
	Name string
	// Switched reports whether the flag has no value.
	Switched bool
	Instead  string
}

// RefuseVendorFlags makes a command explain these flags instead of reporting them as unknown.
func RefuseVendorFlags(cmd *cobra.Command, refused []VendorFlag) {
	for _, f := range refused {
		if f.Switched {
			cmd.Flags().Bool(f.Name, false, f.Instead)
		} else {
			cmd.Flags().String(f.Name, "", f.Instead)
		}
		_ = cmd.Flags().MarkHidden(f.Name)
	}
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) (err error) {
		cmd.Flags().Visit(func(given *pflag.Flag) {
			for _, f := range refused {
				if f.Name == given.Name && err == nil {
					err = &UsageError{Err: fmt.Errorf("--%s is not supported: %s", f.Name, f.Instead)}
				}
			}
		})
		return err
	}
}

// UsageArgs wraps a check of positional arguments, so that it returns a UsageError. The error about an unknown subcommand suggests others,
// the error about a wrong number of arguments ends with the usage line, which names them.
func UsageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		switch {
		case err == nil:
			return nil
		case cmd.HasSubCommands() && len(args) > 0:
			err = suggestCommands(cmd, args[0], err)
		case cobra.NoArgs(cmd, args) != nil && check(cmd, nil) == nil:
			err = fmt.Errorf("unexpected argument %q: use '%s'", args[len(args)-1], cmd.UseLine())
		default:
			err = fmt.Errorf("%w: use '%s'", err, cmd.UseLine())
		}
		return &UsageError{Err: err}
	}
}
