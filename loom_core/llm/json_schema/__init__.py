"""JSON Schemas for models: conversion to the vendors' dialects, and validation of values."""
