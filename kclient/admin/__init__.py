"""Administration of topics and of the cluster: ``Admin`` and its values."""

from __future__ import annotations

from kclient.admin.admin import Admin
from kclient.admin.descriptions import ClusterDescription, TopicDescription, TopicListing
from kclient.admin.topics import CreatedTopic, DeletedTopic, NewTopic

__all__ = [
    "Admin",
    "ClusterDescription",
    "CreatedTopic",
    "DeletedTopic",
    "NewTopic",
    "TopicDescription",
    "TopicListing",
]
