package decode

// transactionID finds the id of the transaction that an event of Debezium is of, as the text between its quotes: member
// "id" of "transaction" (its option provide.transaction.metadata), bare or in the "payload" of a record with schema. It gives
// nil for what has none, or is no JSON that a decoder would take.
func transactionID(value []byte) []byte {
	f := finder{b: value}
	i := space(value, 0)
	if at := f.member(i, "payload"); at >= 0 {
		i = at
	}
	if i = f.member(i, "transaction"); i < 0 {
		return nil
	}
	if i = f.member(i, "id"); i < 0 || value[i] != '"' {
		return nil
	}
	e, _, _ := skipString(value, i+1)
	if e < 0 {
		return nil
	}
	return value[i+1 : e-1]
}

// TransactionID gives what events of one transaction have in common, and those of the next one have not; nil: the event is of
// no transaction, or does not say so. It is a part of the record's value.
//
// PostgreSQL's connector makes the id of the transaction's number and the position of the event in the log, "571:53195832",
// so that the events of one transaction have several ids: of such an id the number is taken. Other sources' ids have no
// number alone before a colon (MySQL's GTIDs begin with a UUID).
func TransactionID(format Format, value []byte) []byte {
	if format != Debezium {
		return nil
	}
	id := transactionID(value)
	if n := digits(id, 0); n > 0 && n+1 < len(id) && id[n] == ':' && digits(id, n+1) == len(id) {
		return id[:n]
	}
	return id
}

// finder looks for members of objects.
type finder struct {
	b    []byte
	nest nesting
}

// member gives where the value of a member of the object at i begins, -1 if there is none. Names are compared as they stand.
func (f *finder) member(i int, name string) int {
	b := f.b
	if i < 0 || i >= len(b) || b[i] != '{' {
		return -1
	}
	for i = space(b, i+1); i < len(b) && b[i] == '"'; i = space(b, i) {
		from := i + 1
		e, _, _ := skipString(b, from)
		if e < 0 {
			return -1
		}
		found := string(b[from:e-1]) == name
		if i = space(b, e); i >= len(b) || b[i] != ':' {
			return -1
		}
		i = space(b, i+1)
		if found {
			if i >= len(b) {
				return -1
			}
			return i
		}
		if i, _ = skipValue(b, i, &f.nest); i < 0 {
			return -1
		}
		if i = space(b, i); i >= len(b) || b[i] != ',' {
			return -1
		}
		i++
	}
	return -1
}
