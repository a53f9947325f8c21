package cli

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/cli/printing"
	"github.com/cluster-version/cvo/pkg/oci/failure"
)

// PrintError prints the error of the executed command: as text, or with --output=json as one JSON object on one line.
func PrintError(w io.Writer, executed *cobra.Command, err error) {
	if flag := accessFlag(executed, err); flag != "" {
		err = fmt.Errorf("%w; use %s", err, flag)
	}
	if !command.IsPrinted(err) || !wantsJSON(executed) {
		command.PrintError(w, err)
		return
	}
	_ = printing.JSONLine(w, struct { // there is nothing left to report this error to
		Error    string `json:"error"`
		ExitCode int    `json:"exitCode"`
	}{err.Error(), command.ExitCode(err)})
}

// accessFlag returns the flag that gives a command access to a registry, if it failed without that access and has the flag.
func accessFlag(cmd *cobra.Command, err error) string {
	inaccessible, ok := errors.AsType[*failure.AccessError](err)
	if !ok || cmd == nil {
		return ""
	}
	var authority x509.UnknownAuthorityError
	flag, value := "", "FILE"
	switch {
	case errors.Is(inaccessible, failure.ErrUnauthorized):
		flag = "registry-config"
	case errors.As(inaccessible, &authority):
		flag = "certificate-authority"
	case inaccessible.WithoutTLS:
		flag, value = "insecure-registry", "HOST"
	}
	if f := cmd.Flags().Lookup(flag); f == nil || f.Changed {
		return ""
	}
	return "--" + flag + " " + value
}

// wantsJSON reports whether a command prints JSON. Commands of OpenShift's client always print errors as text, as that client does.
func wantsJSON(cmd *cobra.Command) bool {
	if cmd == nil {
		return false
	}
	output := cmd.Flags().Lookup("output")
	return output != nil && output.Value.String() == printing.FormatJSON && !isOfOc(cmd)
}

// isOfOc reports whether OpenShift's client has the command too.
func isOfOc(cmd *cobra.Command) bool {
	parent := ""
	if cmd.HasParent() {
		parent = cmd.Parent().Name()
	}
	switch parent + " " + cmd.Name() {
	case "release extract", "release info", "release mirror", "release new",
		"upgrade accept", "upgrade channel", "upgrade recommend", "upgrade rollback", "upgrade status":
		return true
	}
	return cmd.Name() == "upgrade"
}
