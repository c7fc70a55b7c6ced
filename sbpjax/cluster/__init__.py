"""The hardware: devices, their memory and rates, and the links between them."""

from sbpjax.cluster.hardware import Device as Device
from sbpjax.cluster.hardware import Level as Level
from sbpjax.cluster.links import Links as Links
from sbpjax.cluster.machine import Cluster as Cluster
