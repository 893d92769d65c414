package schema

// CheckWritable says why calve must not write the table, or nil.
func (s *Schema) CheckWritable() error { _, err := s.ParseOptions(); return err }

// CheckReadable says why calve would read wrong rows from the table, or nil.
func (s *Schema) CheckReadable() error { _, err := s.ParseOptions(); return err }
