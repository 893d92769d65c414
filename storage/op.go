package storage

// OpKind is what a store is asked to do, as WithFaults and WithCounter tell it.
type OpKind uint8

// The kinds of operations.
const (
	OpOpen        OpKind = iota // Store.Open
	OpRead                      // File.ReadAt
	OpReadAll                   // ReadAll in one request (see AllReader)
	OpCreate                    // Store.Create
	OpWrite                     // Upload.Write
	OpCommit                    // Upload.Commit
	OpPutIfAbsent               // Store.PutIfAbsent
	OpPut                       // Store.Put
	OpList                      // Store.List
	OpWalk                      // Walk in one go (see Walker)
	OpDelete                    // Store.Delete
	opKinds
)

var opNames = [opKinds]string{
	"open", "read", "read all", "create", "write", "commit", "put if absent", "put", "list", "walk", "delete",
}

// String names the kind.
func (k OpKind) String() string {
	if k >= opKinds {
		return "unknown operation"
	}
	return opNames[k]
}
