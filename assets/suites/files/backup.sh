#!/bin/bash
# Copies the home folders to the backup disk, one folder a day, and keeps two weeks.

SOURCE=/home
TARGET=/mnt/backup
KEEP=14
TODAY=`date +%Y-%m-%d`
LOG=/var/log/backup.log

echo "backup $TODAY starts" >> $LOG

if [ ! -d $TARGET ]; then
  echo "target is missing" >> $LOG
  exit 1
fi

mkdir $TARGET/$TODAY

for user in `ls $SOURCE`; do
  echo "copying $user" >> $LOG
  cp -r $SOURCE/$user $TARGET/$TODAY/
  if [ $? -ne 0 ]; then
    echo "copying $user failed" >> $LOG
  fi
done

count=`ls $TARGET | wc -l`
while [ $count -gt $KEEP ]; do
  oldest=`ls $TARGET | head -1`
  echo "removing $oldest" >> $LOG
  rm -rf $TARGET/$oldest
  count=`ls $TARGET | wc -l`
done

size=`du -sh $TARGET/$TODAY | cut -f1`
free=`df -h $TARGET | tail -1 | awk '{print $4}'`
echo "backup $TODAY ends: $size copied, $free free" >> $LOG
