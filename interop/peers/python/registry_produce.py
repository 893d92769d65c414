"""Produces orders by Confluent's serializers, in Avro, Protobuf and JSON Schema, and prints the rows that they leave.

    registry_produce.py BROKER REGISTRY ORDERS SEED

Each topic (orders-avro, orders-protobuf, orders-json) gets ORDERS messages for a tenth as many keys. The second half has
one more field. The last line of the output is an object: for each topic the rows in which its messages end.
"""

import datetime
import decimal
import json
import random
import sys

from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf import timestamp_pb2

UTC = datetime.timezone.utc
STATES = ["OPEN", "PAID", "SHIPPED"]


def avro_schema(second):
    fields = [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": STATES}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "place", "type": ["null", {"type": "record", "name": "Place", "fields": [
            {"name": "city", "type": "string"}, {"name": "lat", "type": "double"}]}], "default": None},
    ]
    if second:
        fields.insert(1, {"name": "quantity", "type": ["null", "int"], "default": None})
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": fields})


def json_schema(second):
    properties = {
        "id": {"type": "integer"},
        "customer": {"type": "string"},
        "price": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
        "state": {"type": "string", "enum": STATES},
        "tags": {"type": "array", "items": {"type": "string"}},
        "place": {"oneOf": [{"type": "null"}, {"type": "object", "title": "Place", "properties": {
            "city": {"type": "string"}, "lat": {"type": "number"}}, "required": ["city", "lat"]}]},
    }
    if second:
        properties["quantity"] = {"oneOf": [{"type": "null"}, {"type": "integer"}]}
    return json.dumps({"$schema": "http://json-schema.org/draft-07/schema#", "title": "Order", "type": "object",
                       "properties": properties, "required": ["id", "customer", "price", "at", "state", "tags"]})


def protobuf_class(second):
    """The class of shop.Order, which is not the first message of its file, and has a message in it."""
    f = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    f.dependency.append("google/protobuf/timestamp.proto")
    T = descriptor_pb2.FieldDescriptorProto

    def field(m, name, number, kind, label=T.LABEL_OPTIONAL, type_name=None, optional=False):
        d = m.field.add(name=name, number=number, type=kind, label=label)
        if type_name:
            d.type_name = type_name
        if optional:
            d.proto3_optional = True
            d.oneof_index = len(m.oneof_decl)
            m.oneof_decl.add(name="_" + name)

    e = f.enum_type.add(name="State")
    for i, name in enumerate(STATES):
        e.value.add(name=name, number=i)
    other = f.message_type.add(name="Other")
    field(other, "x", 1, T.TYPE_INT32)
    order = f.message_type.add(name="Order")
    place = order.nested_type.add(name="Place")
    field(place, "city", 1, T.TYPE_STRING)
    field(place, "lat", 2, T.TYPE_DOUBLE)
    field(order, "id", 1, T.TYPE_INT64)
    field(order, "customer", 2, T.TYPE_STRING)
    field(order, "price", 3, T.TYPE_DOUBLE)
    field(order, "at", 4, T.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp")
    field(order, "state", 5, T.TYPE_ENUM, type_name=".shop.State")
    field(order, "tags", 6, T.TYPE_STRING, label=T.LABEL_REPEATED)
    field(order, "place", 7, T.TYPE_MESSAGE, type_name=".shop.Order.Place")
    if second:
        field(order, "quantity", 8, T.TYPE_INT32, optional=True)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(f)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def order(rng, key, second):
    o = {
        "id": key,
        "customer": rng.choice(["Åse", "Bo", "日本", ""]) + str(rng.randrange(1000)),
        "price": decimal.Decimal(rng.randrange(-10**8, 10**8)).scaleb(-2),
        "at": datetime.datetime(2026, 1, 2, tzinfo=UTC) + datetime.timedelta(microseconds=rng.randrange(10**14)),
        "state": rng.choice(STATES),
        "tags": [rng.choice("abc") for _ in range(rng.randrange(4))],
        "place": rng.choice([None, {"city": "Nuuk", "lat": rng.randrange(1000) / 8}]),
    }
    if second:
        o["quantity"] = rng.choice([None, rng.randrange(100)])
    return o


def to_json(o, _):
    return {**o, "price": float(o["price"]), "at": o["at"].isoformat(timespec="microseconds").replace("+00:00", "Z")}


def to_message(cls, o):
    m = cls(id=o["id"], customer=o["customer"], price=float(o["price"]), state=o["state"], tags=o["tags"])
    micros = (o["at"] - datetime.datetime(1970, 1, 1, tzinfo=UTC)) // datetime.timedelta(microseconds=1)
    m.at.seconds, m.at.nanos = micros // 10**6, micros % 10**6 * 1000
    if o["place"] is not None:
        m.place.city, m.place.lat = o["place"]["city"], o["place"]["lat"]
    if o.get("quantity") is not None:
        m.quantity = o["quantity"]
    return m


def row(o, **more):
    return {**o, "quantity": o.get("quantity"), "price": str(o["price"]),
            "at": o["at"].replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds"), **more}


def main(broker, registry, orders, seed):
    rng = random.Random(int(seed))
    client = SchemaRegistryClient({"url": registry})
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True, "linger.ms": 20})
    failed = []
    classes = [protobuf_class(False), protobuf_class(True)]
    serializers = {
        "orders-avro": [AvroSerializer(client, avro_schema(second)) for second in (False, True)],
        "orders-protobuf": [ProtobufSerializer(cls, client, {"use.deprecated.format": False}) for cls in classes],
        "orders-json": [JSONSerializer(json_schema(second), client, to_json) for second in (False, True)],
    }
    rows = {topic: {} for topic in serializers}
    for i in range(int(orders)):
        second = i >= int(orders) // 2
        o = order(rng, rng.randrange(max(1, int(orders) // 10)), second)
        for topic, forms in serializers.items():
            value = to_message(classes[second], o) if topic == "orders-protobuf" else o
            data = forms[second](value, SerializationContext(topic, MessageField.VALUE))
            producer.produce(topic, value=data, key=str(o["id"]), on_delivery=lambda err, _: err and failed.append(err))
            rows[topic][o["id"]] = row(o)
        producer.poll(0)
    producer.flush(60)
    if failed:
        raise SystemExit(f"{len(failed)} messages were not delivered, the first: {failed[0]}")
    print(json.dumps({topic: list(kept.values()) for topic, kept in rows.items()}, ensure_ascii=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
