package payload

import (
	"bytes"
	"fmt"
	"path"
	"reflect"
	"strings"
	"text/template"
	"text/template/parse"

	"golang.org/x/sync/semaphore"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// templater renders the operator's own manifests, which are Go templates with a few values.
type templater struct {
	values templateValues
	limits manifest.Limits
	strict bool
	// parsing admits files to the parser, by their length.
	parsing *semaphore.Weighted
}

// templateValues holds the values for templates: those that existing releases use, and BringYourOwnNetwork for this operator's.
type templateValues struct {
	ReleaseImage        string
	ClusterProfile      string
	Images              map[string]string
	BringYourOwnNetwork bool
}

func newTemplater(image, profile string, images map[string]string, opts Options) *templater {
	if profile == "" {
		profile = api.DefaultProfile
	}
	return &templater{
		values: templateValues{
			ReleaseImage: image, ClusterProfile: profile, Images: images, BringYourOwnNetwork: opts.BringYourOwnNetwork,
		},
		limits:  opts.Limits.WithDefaults(),
		strict:  opts.TemplateErrors,
		parsing: semaphore.NewWeighted(parsedBytes),
	}
}

// AnyRelease is the pullspec in the files that Render returns.
const AnyRelease = "release.invalid/release@sha256:0000000000000000000000000000000000000000000000000000000000000000"

// Render renders a file of the operator's own folder as Load does for a cluster with the default profile, but with AnyRelease as the
// release's pullspec: a new release has none yet, and templates of two releases shall be equal. references maps the names of the release's
// images to pullspecs.
func Render(file string, text []byte, references map[string]string) ([]byte, error) {
	return newTemplater(AnyRelease, "", references, Options{}).execute(path.Base(file), text)
}

// Limits of one template. Real templates have a handful of actions and print one or two names.
const (
	// maxActions also limits the nesting of a template. Parsing recurses for each level, and a stack overflow would kill the process.
	maxActions = 10_000
	// maxPrinted limits the output of print in bytes. A template that prints its own output would double it each time.
	maxPrinted = 64 << 10
)

// execute renders one file. Templates come from outside, so execute allows only a subset whose cost is proportional to its length: text,
// values, conditions and the functions of allowedFunction. It allows no loops, no recursion, and no printf, whose widths could produce
// megabytes of padding.
func (t *templater) execute(name string, text []byte) ([]byte, error) {
	if actions := bytes.Count(text, []byte("{{")); actions > maxActions {
		return nil, fmt.Errorf("reading template: it has %d actions, the limit is %d", actions, maxActions)
	}
	functions := template.FuncMap{"index": imageIndex, "print": (&printer{left: maxPrinted}).print}
	tmpl, err := template.New(name).Option("missingkey=error").Funcs(functions).Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("reading template: %w", err)
	}
	if len(tmpl.Templates()) > 1 {
		return nil, fmt.Errorf("reading template: it defines templates, which is not supported")
	}
	if tmpl.Tree == nil || tmpl.Root == nil {
		return nil, nil // only space and comments
	}
	if err := checkNode(tmpl.Root); err != nil {
		return nil, fmt.Errorf("reading template: %w", err)
	}
	out := limitedBuffer{limit: t.limits.FileBytes}
	if err := tmpl.Execute(&out, t.values); err != nil {
		return nil, fmt.Errorf("executing template: %w", err)
	}
	return out.Bytes(), nil
}

// imageIndex replaces the built-in index. It rejects a name that the release does not list, instead of returning an empty pullspec.
func imageIndex(images map[string]string, name string) (string, error) {
	pullspec, ok := images[name]
	if !ok {
		return "", fmt.Errorf("the release has no image %q", name)
	}
	return pullspec, nil
}

// printer replaces the built-in print with one whose total output is limited.
type printer struct{ left int }

func (p *printer) print(values ...any) (string, error) {
	var out strings.Builder
	for i, v := range values {
		text := fmt.Sprint(v)
		if i > 0 && !isText(v) && !isText(values[i-1]) {
			text = " " + text // as fmt.Sprint does
		}
		if p.left -= len(text); p.left < 0 {
			return "", fmt.Errorf("its output has more than %d bytes", maxPrinted)
		}
		out.WriteString(text)
	}
	return out.String(), nil
}

func isText(v any) bool { return reflect.ValueOf(v).Kind() == reflect.String }

func allowedFunction(name string) bool {
	switch name {
	case "index", "eq", "ne", "and", "or", "not", "print":
		return true
	}
	return false
}

// checkNode walks a template's tree and rejects all nodes that are not known to be cheap.
func checkNode(node parse.Node) error {
	switch n := node.(type) {
	case *parse.ListNode:
		if n == nil {
			return nil
		}
		return checkNodes(n.Nodes)
	case *parse.ActionNode:
		return checkNode(n.Pipe)
	case *parse.IfNode:
		return checkBranch(&n.BranchNode)
	case *parse.WithNode:
		return checkBranch(&n.BranchNode)
	case *parse.PipeNode:
		for _, command := range n.Cmds {
			if err := checkNodes(command.Args); err != nil {
				return err
			}
		}
		return nil
	case *parse.IdentifierNode:
		if !allowedFunction(n.Ident) {
			return fmt.Errorf("function %q is not available", n.Ident)
		}
		return nil
	case *parse.ChainNode:
		return checkNode(n.Node)
	case *parse.TextNode, *parse.CommentNode, *parse.FieldNode, *parse.VariableNode, *parse.DotNode, *parse.StringNode,
		*parse.BoolNode, *parse.NumberNode, *parse.NilNode:
		return nil
	default:
		return fmt.Errorf("%q is not available", node)
	}
}

func checkNodes(nodes []parse.Node) error {
	for _, n := range nodes {
		if err := checkNode(n); err != nil {
			return err
		}
	}
	return nil
}

func checkBranch(n *parse.BranchNode) error {
	return checkNodes([]parse.Node{n.Pipe, n.List, n.ElseList})
}

// limitedBuffer is a buffer with a limit in bytes. A write beyond the limit fails.
type limitedBuffer struct {
	bytes.Buffer
	limit int
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.limit {
		return 0, fmt.Errorf("the result has more than %d bytes", b.limit)
	}
	return b.Buffer.Write(p)
}
