package manifest

// Documents returns the documents of a stream up to the first invalid separator, and its error.
func Documents(data []byte) ([]string, error) {
	out := []string{}
	for d := range documents(data) {
		if d.err != nil {
			return out, d.err
		}
		out = append(out, string(d.text))
	}
	return out, nil
}
