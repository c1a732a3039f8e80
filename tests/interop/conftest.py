"""Interop runs on the broker that `--broker` names; tests/support/broker_fixtures.py explains."""

from __future__ import annotations

from tests.support.broker_fixtures import admin as admin
from tests.support.broker_fixtures import broker as broker
from tests.support.broker_fixtures import clients as clients
from tests.support.broker_fixtures import consumer as consumer
from tests.support.broker_fixtures import producer as producer
from tests.support.broker_fixtures import real_broker as real_broker
from tests.support.broker_fixtures import topic as topic
